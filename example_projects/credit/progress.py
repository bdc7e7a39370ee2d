"""Lines on the terminal that show what is going on and how long it has taken."""

from __future__ import annotations

import signal
import sys
import time


def end_on_signals() -> None:
    """Leave in order when the process is interrupted or terminated, so that a run is closed and a server stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))


class Progress:
    """Prints one line per step, with the seconds since the start, and what a long step waits for."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._waiting = False

    def step(self, text: str) -> None:
        """Print `text` as the next step."""
        print(f"[{time.monotonic() - self._start:5.1f} s] {text}", flush=True)

    def wait(self, text: str, *, over: bool = False) -> None:
        """Show what is being waited for: on a terminal in place, elsewhere one line at the start and the end."""
        if over or not self._waiting or sys.stdout.isatty():
            self._in_place(text, last=over)
        self._waiting = not over

    def _in_place(self, text: str, *, last: bool) -> None:
        line = f"[{time.monotonic() - self._start:5.1f} s]   {text}"
        if sys.stdout.isatty():
            clear = "\x1b[K"  # the rest of a longer line before
            print(f"\r{line}{clear}", end="\n" if last else "", flush=True)
        else:
            print(line, flush=True)
