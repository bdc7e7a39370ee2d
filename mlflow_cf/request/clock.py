"""The time limit of a request, shared by its rows: each is searched and proved, and none may starve the others."""

from __future__ import annotations

import time

SEARCH_SHARE = 0.8  # of the time there is; the rest is for the proof of what the search found
LEAST_S = 0.05  # a search that ends in its first moments finds nothing
MOST_GUESSED_S = 0.03  # of the proof of a row, before any was proved: as long as its search, but no longer than this


class Clock:
    """Gives every row its time; belongs to one request and one thread."""

    def __init__(self, deadline: float | None) -> None:
        """Set up a clock; `deadline` is a `time.perf_counter` value, None: all the time there is."""
        self._deadline = deadline
        self._search_end = 0.0
        self._rows = 0  # still to be searched, of those that share the time now
        self._others = 0  # that share it later
        self._proof_s: float | None = None
        self._started, self._searched = 0.0, 0  # since when, and how many rows of those that share the time now

    def share(self, rows: int, rows_left: int) -> None:
        """Start to search the next `rows` in an even share of the time that is left for `rows_left`."""
        self._rows, self._others = rows, rows_left - rows
        if self._deadline is not None:
            now = time.perf_counter()
            self._started, self._searched = now, 0
            left = SEARCH_SHARE * max(self._deadline - now, 0.0)
            # some rows answered are better than none: if it is too little for all, the first get enough
            self._search_end = now + min(max(left * rows / rows_left, LEAST_S * rows), left)

    def again(self, rows: int) -> None:
        """Start to search `rows` once more, beside those that are still to come."""
        self.share(rows, rows + self._others)

    def row_end(self, found: int) -> float | None:
        """Return when the search of the next row must end: at once if the `found` rows need the rest to be proved."""
        if self._deadline is None:
            return None
        now = time.perf_counter()
        proof_s = self._proof_s
        if proof_s is None:
            proof_s = min((now - self._started) / max(self._searched, 1), MOST_GUESSED_S)
        self._searched += 1
        left = max(min(self._search_end, self._deadline - (found + 1) * proof_s) - now, 0.0)
        rows, self._rows = max(self._rows, 1), self._rows - 1
        return now + min(max(left / rows, LEAST_S), left)

    def proved(self, rows: int, seconds: float) -> None:
        """Learn from the proof of `rows` how long the next will take."""
        if rows:
            self._proof_s = seconds / rows
