"""Regions in plain words: which values each feature may have, and the answer stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mlflow_cf.words.result import RegionSide, spoken

MOST_LEVELS: Final = 5  # that a sentence lists


def region_text(sides: Sequence[RegionSide], ends: Sequence[tuple[bool, bool]]) -> str:
    """Return ``it holds while utilisation is 52 or less and income is from 38,000 to 60,000``.

    Args:
        sides: of the region, at least one.
        ends: of each, whether no admissible value lies below its low end, and above its high end.
    """
    parts = [
        f"{side.feature.replace('_', ' ')} is {_values(side, *some)}" for side, some in zip(sides, ends, strict=True)
    ]
    return "it holds while " + (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0])


def _values(side: RegionSide, at_low: bool, at_high: bool) -> str:  # noqa: FBT001  a pair of them
    if side.levels:
        told = [spoken(level) for level in side.levels[:MOST_LEVELS]]
        others = len(side.levels) - len(told)
        return " or ".join(told) if not others else f"{', '.join(told)} or one of {others:,} more"
    if side.low == side.high:
        return spoken(side.low)
    low, high = spoken(side.low), spoken(side.high)
    if low == high:  # closer than the digits shown
        low, high = repr(side.low), repr(side.high)
    less, more = ("earlier", "later") if isinstance(side.low, str) else ("less", "more")
    if at_low and not at_high:
        return f"{high} or {less}"
    return f"{low} or {more}" if at_high and not at_low else f"from {low} to {high}"
