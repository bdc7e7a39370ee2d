"""Small drawings of how often the background has each value of a feature, and where on them a change begins and ends.

Numbers and dates are histograms whose bins end at round numbers; levels are bars, the frequent ones first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.features.feature import Feature, Floats, Level

WIDTH, HEIGHT = 120.0, 20.0  # of the bars; marks stand below them
EDGE: Final = 4.0  # marks keep this far from both ends
BINS: Final = 16  # at most about so many
MOST_BARS: Final = 24  # levels with a bar of their own
SHORTEST: Final = 0.8  # bars of rare values are seen, too
TAIL: Final = 0.01  # share of the background beyond each end of the axis,
WIDE: Final = 2.5  # where all of it would be so many times as wide


class Bar(NamedTuple):
    """One bar: its left end, width and height."""

    left: float
    width: float
    height: float


class Drawing(NamedTuple):
    """One feature's distribution.

    Attributes:
        bars: of values and bins that are not empty; none: too little is known.
        low, high: what both ends of the axis of numbers stand for; levels have their number, `places` theirs.
        places: code of a level -> the middle of its bar.
    """

    bars: tuple[Bar, ...]
    low: float
    high: float
    places: Mapping[int, float]

    @property
    def path(self) -> str:
        """The outline of all bars, as data of an SVG path."""
        return "".join(f"M{bar.left:g} {HEIGHT:g}v-{bar.height:g}h{bar.width:g}V{HEIGHT:g}z" for bar in self.bars)

    def place(self, code: float | None) -> float | None:
        """Return where a code lies on the axis; None where it has no place."""
        if code is None or math.isnan(code) or not self.bars:
            return None
        if self.places:
            return self.places.get(int(code))
        share = (code - self.low) / (self.high - self.low)
        return _round(min(max(share * WIDTH, EDGE), WIDTH - EDGE))


EMPTY: Final = Drawing((), 0.0, 0.0, {})


class Marked(NamedTuple):
    """A distribution on which a change is marked.

    Attributes:
        name: id of the drawing on the page, if it stands there once for all cards; else "".
        drawing: the distribution.
        old, new: where the change begins and ends; None: not on the axis, such as a missing value.
        bands: left ends and widths of what a region allows.
    """

    name: str
    drawing: Drawing
    old: float | None
    new: float | None
    bands: tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False)
class Pictures:
    """The distributions of a model's features, drawn when they are asked for.

    Attributes:
        features: of the model, in order, with their active domains. Nothing else of the background is drawn.
        least: values and bins of so many background rows or fewer are left blank, for readers who may not learn of
            them (`Privacy.k_anonymous`); 0: nothing is.
        shared: whether cards refer to one drawing per feature, which `definitions` returns, in place of one of their
            own; with 1,000 cards that is a tenth of the bytes.
    """

    features: Sequence[Feature]
    least: int = 0
    shared: bool = False
    drawn: dict[str, Drawing] = field(default_factory=dict, repr=False)  # each is computed once, by whoever asks first

    @cached_property
    def known(self) -> dict[str, Feature]:
        """The features by name."""
        return {feature.name: feature for feature in self.features}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.known)}

    def drawing(self, name: str) -> Drawing:
        """Return the distribution of a feature; an empty one where nothing is known of it."""
        if name not in self.drawn:
            self.drawn[name] = _drawn(self.known[name], self.least) if name in self.known else EMPTY
        return self.drawn[name]

    def definitions(self, names: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return id and path of the distributions that cards of a page refer to: of all features, or those named."""
        asked = (
            (self.known if names is None else [name for name in self.known if name in set(names)])
            if self.shared
            else ()
        )
        return [(self._id(name), self.drawing(name).path) for name in asked if self.drawing(name).bars]

    def marked(
        self, name: str, old: Level | None, new: Level | None, allowed: Mapping[str, Sequence[Level]] | None = None
    ) -> Marked | None:
        """Return a distribution with a change on it, and what a region allows; None: there is nothing to draw.

        Args:
            name: of the feature.
            old, new: its values.
            allowed: ``ends`` of numbers, low and high, or ``levels``.
        """
        drawing = self.drawing(name)
        if not drawing.bars:
            return None
        feature, told = self.known[name], allowed or {}
        bands: list[tuple[float, float]] = []
        ends = [drawing.place(_code(feature, value)) for value in told.get("ends", ())]
        if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
            bands.append((ends[0], max(_round(ends[1] - ends[0]), 1.0)))
        for level in told.get("levels", ()):
            middle = drawing.place(_code(feature, level))
            if middle is not None:
                wide = _slot(len(drawing.places))
                bands.append((_round(middle - wide / 2), _round(wide)))
        begin, end = (drawing.place(_code(feature, value)) for value in (old, new))
        return Marked(self._id(name) if self.shared else "", drawing, begin, end, tuple(bands))

    def _id(self, name: str) -> str:
        return f"cf-{self._numbers[name]}"


def _drawn(feature: Feature, least: int) -> Drawing:
    if len(feature.values) < 2 or len(feature.counts) != len(feature.values):
        return EMPTY
    return _histogram(feature, least) if feature.numeric else _bars(feature, least)


def _histogram(feature: Feature, least: int) -> Drawing:
    """Draw numbers; bins end at multiples of a round number, and what lies in a far tail falls into the last ones."""
    low, high = _axis(feature.values, feature.counts)
    width, step = _round_number((high - low) / BINS), 0.0 if feature.kind == "real" else feature.step or 0.0
    if step:
        width = math.ceil(width / step) * step  # so that every bin has as many values
    if not np.isfinite(high - low) or width <= 0:
        return EMPTY
    start = math.floor(low / width) * width - step / 2  # a value lies in the middle of a bin that it has for itself
    bins = math.floor((high - start) / width) + 1
    at = np.clip(np.floor((feature.values - start) / width), 0, bins - 1).astype(np.intp)
    counts: Floats = np.bincount(at, weights=feature.counts, minlength=bins).astype(np.float64)
    counts[counts <= least] = 0.0
    if not counts.any():
        return EMPTY
    first, last = np.flatnonzero(counts)[[0, -1]].tolist()  # where nothing may be told, the axis tells no ends either
    return Drawing(_of_heights(counts[first : last + 1], 1.0), start + first * width, start + (last + 1) * width, {})


def _axis(values: Floats, counts: Floats) -> tuple[float, float]:
    """Return the ends of the axis: all values, or all but far tails."""
    low, high = float(values[0]), float(values[-1])
    below = np.cumsum(counts) / counts.sum()
    inner = (float(values[int(np.searchsorted(below, share))]) for share in (TAIL, 1 - TAIL))
    near, far = inner
    return (near, far) if far > near and high - low > WIDE * (far - near) else (low, high)


def _round_number(least: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is no less."""
    if not np.isfinite(least) or least < 1e-300:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((some * power for some in (1.0, 2.0, 2.5, 5.0) if some * power >= least), 10 * power)


def _bars(feature: Feature, least: int) -> Drawing:
    """Draw levels: ranks in their order, others by how frequent they are; the rarest ones share the last bar."""
    codes, counts = feature.values.astype(np.intp), np.where(feature.counts > least, feature.counts, 0.0)
    order = np.arange(len(codes)) if feature.kind in ("ordinal", "boolean") else np.argsort(-counts, kind="stable")
    own = min(len(order), MOST_BARS)
    heights = counts[order][:own]
    if own < len(order):
        heights = np.append(heights, counts[order][own:].sum())
    if not heights.any():
        return EMPTY
    slot = _slot(len(heights))
    places = {int(codes[one]): _round((min(at, own) + 0.5) * slot) for at, one in enumerate(order.tolist())}
    return Drawing(_of_heights(heights, 0.7), 0.0, 0.0, places)


def _slot(bars: int) -> float:
    return WIDTH / min(bars, MOST_BARS + 1)


def _of_heights(heights: Floats, share: float) -> tuple[Bar, ...]:
    """Return bars of these heights (n,) side by side, each of them this share of its place wide."""
    tallest, slot = float(heights.max()), WIDTH / len(heights)
    return tuple(
        Bar(
            _round(slot * (number + (1 - share) / 2)),
            _round(slot * share),
            _round(max(height / tallest * HEIGHT, SHORTEST)),
        )
        for number, height in enumerate(heights.tolist())
        if height
    )


def _code(feature: Feature, value: Level | None) -> float | None:
    return None if value is None else feature.code(value)


def _round(number: float) -> float:
    return round(number, 1)
