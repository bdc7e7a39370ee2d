"""What a page is made of: bars, histograms, dots, maps and tables, with numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.features import Floats

BINS: Final = 20
ROOM: Final = 100.0  # units of a picture's width; its template stretches them


@dataclass(frozen=True)
class Bar:
    """One part of a whole.

    Attributes:
        key: what templates know it by.
        label: what it is called.
        count: how many; share: of the whole.
        example: words that say more.
    """

    key: str
    label: str
    count: int
    share: float
    example: str = ""


@dataclass(frozen=True)
class Histogram:
    """How values are distributed.

    Attributes:
        counts: in bins of one width.
        low, high: where the first bin begins and the last one ends.
        median: the value that half of them do not exceed.
    """

    counts: tuple[int, ...]
    low: float
    high: float
    median: float

    @classmethod
    def of(cls, values: Floats) -> Histogram | None:
        """Return that of values (m,), from 0 on if none is negative; None without any."""
        known = values[np.isfinite(values)]
        if not len(known):
            return None
        low, high = min(0.0, float(known.min())), float(known.max())
        high = high if high > low else low + 1.0
        counts, _ = np.histogram(known, bins=BINS, range=(low, high))
        return cls(tuple(counts.tolist()), low, high, float(np.median(known)))

    @property
    def most(self) -> int:
        """The count of the highest bin."""
        return max(self.counts)

    def place(self, value: float) -> float:
        """Return where a value is from left to right, from 0 to 100."""
        return round(ROOM * (value - self.low) / (self.high - self.low), 2)


@dataclass(frozen=True)
class Dot:
    """A mean with its error.

    Attributes:
        label: whose it is.
        value: the mean; error: its standard error, if there is one.
        count: of how many.
    """

    label: str
    value: float
    error: float | None
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """Two standard errors to either side of the mean, not below 0."""
        reach = 2 * (self.error or 0.0)
        return max(self.value - reach, 0.0), self.value + reach


@dataclass(frozen=True)
class Dots:
    """Means on a common scale from 0 on."""

    items: tuple[Dot, ...]

    @property
    def high(self) -> float:
        """Where the scale ends."""
        return max((dot.ends[1] for dot in self.items), default=0.0) or 1.0

    def place(self, value: float) -> float:
        """Return where a value is from left to right, from 0 to 100."""
        return round(ROOM * value / self.high, 2)


@dataclass(frozen=True)
class Table:
    """Cells in lines below a head; all columns but the first `names` hold numbers."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class HeatMap:
    """Shares of one thing (lines) under others (columns); None is not known."""

    names: tuple[str, ...]
    shares: tuple[tuple[float | None, ...], ...]


def percent(share: float) -> str:
    """Return a share as ``97%``; only nothing is 0%, and only all of it 100%."""
    share = round(share, 9)  # of a sum
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    text = f"{share:.0%}" if 0.01 <= share < 0.995 else f"{share:.1%}"
    return {"0.0%": "<0.1%", "100.0%": ">99.9%"}.get(text, text)


def short(value: float | None) -> str:
    """Return a number in three digits, as ``0.0431`` or ``12,300``; nothing for what is not known."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bars(keys: Sequence[str], labels: Sequence[str], counts: Sequence[int]) -> tuple[Bar, ...]:
    """Return the parts of a whole that are there, in order."""
    whole = sum(counts)
    found = zip(keys, labels, counts, strict=True)
    return tuple(Bar(key, label, count, count / whole) for key, label, count in found if count)
