"""Which window each answer belongs to, and which answers the others are compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.monitoring.lines import Ints, Lines

MOST: Final = 1_000  # windows
NEARLY: Final = 0.9  # of a window must be over for it to be tested
DAY: Final = pd.Timedelta("1D")
LONGEST: Final = pd.Timedelta("36500D")  # window
EARLIEST, LATEST = pd.Timestamp("1700-01-01"), pd.Timestamp("2150-01-01")  # a window more can be counted in nanoseconds
REFERENCE: Final = "reference"
_DAYS: Final = re.compile(r"(?<=\d)\s*d\b")
Interval = tuple[pd.Timestamp, pd.Timestamp]  # from the first moment to the one after the last, UTC without a zone


@dataclass(frozen=True)
class Window:
    """A stretch of time.

    Attributes:
        name: its first day or moment, or ``reference``.
        start, end: the first moment, and the one after the last; UTC without a zone.
        whole: whether it is over, nearly.
        reference: whether the others are compared with it.
    """

    name: str
    start: pd.Timestamp
    end: pd.Timestamp
    whole: bool = True
    reference: bool = False


@dataclass(frozen=True, eq=False)
class Cut:
    """Answers cut into windows.

    Attributes:
        windows: the reference, then the others in the order of time; those without answers too.
        place: (m,) the number of every line's window.
    """

    windows: tuple[Window, ...]
    place: Ints

    def notes(self) -> Iterator[str]:
        """Yield what is to be said of the windows."""
        last = self.windows[-1]
        if last.reference:
            yield "there is no window behind the reference"
        elif not last.whole:
            yield f"the window from {last.name} is not over yet: it is shown, and not tested"
        empty = [one.name for at, one in enumerate(self.windows) if not (self.place == at).any()]
        if empty:
            yield f"windows without any answer: {', '.join(empty[:6])}{', ...' if len(empty) > 6 else ''}"


def width_of(window: str | pd.Timedelta) -> pd.Timedelta:
    """Return how long windows are.

    Raises:
        InputError: no length of time.
    """
    try:
        # people write 7d; pandas will only know 7D
        width = pd.Timedelta(_DAYS.sub("D", window) if isinstance(window, str) else window)
    except (ValueError, TypeError) as error:
        raise InputError("window", f"{window!r} is no length of time", "such as '7d' or '12h'") from error
    if pd.isna(width) or width < pd.Timedelta("1s"):
        raise InputError("window", f"{window!r} is no length of time, or too short", "such as '7d' or '12h'")
    if width > LONGEST:
        raise InputError("window", f"{window!r} is longer than a century", "such as '7d' or '12h'")
    return width


def interval_of(reference: object) -> Interval | None:
    """Return the interval that is written as ``"2026-01-01/2026-02-01"``, or as a pair of moments; None: it is no such.

    Raises:
        InputError: a pair that ends before it begins, or whose parts are no moments.
    """
    if isinstance(reference, str) and reference.count("/") == 1 and reference[:4].isdigit():
        parts: tuple[object, ...] = tuple(reference.split("/"))
    elif isinstance(reference, tuple) and len(reference) == 2:
        parts = reference
    else:
        return None
    start, end = (moment("reference", part) for part in parts)
    if start >= end:
        raise InputError("reference", f"{start} is not before {end}", "such as '2026-01-01/2026-02-01'")
    return start, end


def moment(path: str, value: object) -> pd.Timestamp:
    """Return a moment in UTC without a zone.

    Raises:
        InputError: it is none, or centuries away.
    """
    try:
        found = pd.Timestamp(value)  # type: ignore[arg-type]  # whatever it is, it is asked
    except (ValueError, TypeError) as error:
        raise InputError(path, f"{value!r} is no moment", "such as '2026-01-01' or '2026-01-01T12:00'") from error
    if pd.isna(found):
        raise InputError(path, f"{value!r} is no moment", "such as '2026-01-01' or '2026-01-01T12:00'")
    found = found if found.tzinfo is None else found.tz_convert("UTC").tz_localize(None)
    if not EARLIEST <= found <= LATEST:
        raise InputError(path, f"{value!r} is too far away", f"a moment from {EARLIEST.year} to {LATEST.year}")
    return found


def cut(lines: Lines, width: pd.Timedelta, interval: Interval | None, until: pd.Timestamp) -> tuple[Lines, Cut]:
    """Return the lines in windows, of which the first is the reference, and how they are cut.

    Args:
        lines: in the order of time, one at least.
        width: of a window.
        interval: of the reference; None: the first window is the reference. Windows begin where it ends.
        until: the moment that answers are known to.

    Raises:
        InputError: too many windows, or no answers in the reference or after it.
    """
    first = _first(lines, width) if interval is None else interval[0]
    begin = first + width if interval is None else interval[1]
    lines = lines.without(lines.time < _ns(first), "they are older than the reference")
    count = -(-(until - begin) // width) if until > begin else 0
    last = pd.Timestamp(int(lines.time[-1])) if len(lines) else first
    count = max(int(count), int((last - begin) // width) + 1 if last >= begin else 0)
    if count > MOST:
        raise InputError("window", f"{width} makes {count:,} windows, at most {MOST:,} are shown", "take a longer one")
    place = np.where(lines.time < _ns(begin), 0, 1 + (lines.time - _ns(begin)) // width.value).astype(np.intp)
    if not (place == 0).any():
        raise InputError("reference", f"no answers from {first} to {begin}", "name an interval that has some")
    windows = [Window(REFERENCE, first, begin, whole=until >= begin - (1 - NEARLY) * width, reference=True)]
    for number in range(count):
        start = begin + number * width
        whole = (until - start) / width >= NEARLY
        windows.append(Window(_name(start), start, start + width, whole=bool(whole)))
    return lines, Cut(tuple(windows), place)


def cut_beside(lines: Lines, reference: Lines, width: pd.Timedelta, until: pd.Timestamp) -> tuple[Lines, Cut]:
    """Return the lines of a reference with a table of its own, then those in windows, and how they are cut."""
    start = _first(lines, width)
    _, own = cut(lines, width, (start, start + width), until)
    first = Window(_name(start), start, start + width, whole=bool((until - start) / width >= NEARLY))
    oldest, latest = (pd.Timestamp(int(reference.time[at])) for at in (0, -1))
    known = Window(REFERENCE, oldest, latest, reference=True)
    place: NDArray[np.intp] = np.concatenate([np.zeros(len(reference), dtype=np.intp), own.place + 1])
    return reference.followed_by(lines), Cut((known, first, *own.windows[1:]), place)


def units(lines: Lines, place: Ints, block: str) -> Ints:
    """Return the number of what each line belongs to that is drawn as a whole: its request, hour or day.

    Units of different windows differ.
    """
    if block == "request":
        named: Bools = lines.request != ""
        codes = pd.factorize(lines.request)[0].astype(np.int64)
        own = np.arange(len(lines)) + int(codes.max(initial=0)) + 1
        label = np.where(named, codes, own)
    else:
        label = lines.time // pd.Timedelta(1, unit="h" if block == "hour" else "D").value
    pairs = pd.MultiIndex.from_arrays([place, label])
    return pairs.factorize()[0].astype(np.intp)


def _first(lines: Lines, width: pd.Timedelta) -> pd.Timestamp:
    """Return the beginning of the day of the first line, or of an hour and so on, where windows are shorter."""
    time = pd.Timestamp(int(lines.time[0]))
    return time.floor("D") if width >= DAY else time.floor(width)


def _ns(time: pd.Timestamp) -> int:
    return int(time.as_unit("ns").value)


def _name(start: pd.Timestamp) -> str:
    return start.strftime("%Y-%m-%d") if start == start.floor("D") else start.isoformat(timespec="minutes")
