"""The time limit of a request, shared by its rows: each is searched and proved, and none may starve the others."""

from __future__ import annotations

import time

SEARCH_SHARE = 0.8  # of the time there is; the rest is for the proof of what the search found
LEAST_S = 0.05  # a search that ends in its first moments finds nothing


class Clock:
    """Gives every row its time; belongs to one request and one thread."""

    def __init__(self, deadline: float | None) -> None:
        """Set up a clock; `deadline` is a `time.perf_counter` value, None: all the time there is."""
        self._deadline = deadline
        self._search_end = 0.0
        self._rows = 0  # still to be searched, of those that share the time now
        self._others = 0  # that share it later
        self._proof_s = 0.0

    def share(self, rows: int, rows_left: int) -> None:
        """Start to search the next `rows` in an even share of the time that is left for `rows_left`."""
        self._rows, self._others = rows, rows_left - rows
        if self._deadline is not None:
            now = time.perf_counter()
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
        left = max(min(self._search_end, self._deadline - (found + 1) * self._proof_s) - now, 0.0)
        rows, self._rows = max(self._rows, 1), self._rows - 1
        return now + min(max(left / rows, LEAST_S), left)

    def proved(self, rows: int, seconds: float) -> None:
        """Learn from the proof of `rows` how long the next will take."""
        if rows:
            self._proof_s = seconds / rows
