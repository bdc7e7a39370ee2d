"""The corners of a recorded region, and whether a region has all of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final

from mlflow_cf.features import Feature, FeatureSpace, Level
from mlflow_cf.records.document import RecordedSide
from mlflow_cf.words.changes import RegionSide, written

MOST: Final = 256  # corners


def corners(space: FeatureSpace, row: Mapping[str, Any], sides: Sequence[RecordedSide]) -> Iterator[dict[str, Any]]:
    """Yield rows of plain values at the corners of a region around a row: every level, and both ends of numbers."""
    features = {feature.name: feature for feature in space.features}
    values = [_ends(features.get(side.feature), side) for side in sides]
    for corner in islice(product(*values), MOST):
        yield {**row, **dict(zip((side.feature for side in sides), corner, strict=True))}


def is_inside(
    space: FeatureSpace, row: Mapping[str, Any], sides: Sequence[RecordedSide], others: Sequence[RegionSide]
) -> bool:
    """Whether the region of `sides` lies in that of `others`; features without a side keep the value of the row."""
    features, known = {feature.name: feature for feature in space.features}, {side.feature: side for side in others}
    for side in sides:
        other, ends = known.get(side.feature), _ends(features.get(side.feature), side)
        if other is None:
            inside = all(end == row[side.feature] for end in ends)
        elif other.low is None or other.high is None:
            inside = set(ends) <= set(other.levels)
        else:
            inside = all(_within(other.low, end, other.high) for end in ends)
        if not inside:
            return False
    return True


def _ends(feature: Feature | None, side: RecordedSide) -> list[Any]:
    """Return the ends of an interval, or the levels, as plain values instead of text."""
    if feature is None:
        return []
    if feature.levels:
        known = {written(level): level for level in feature.levels}
        return [known.get(text, text) for text in side.levels]
    if side.levels:
        truths: dict[str, Any] = {"true": True, "false": False}
        return [truths.get(text, text) for text in side.levels]
    return [_number(feature, text) for text in (side.low, side.high) if text is not None]


def _number(feature: Feature, text: str) -> Level:
    if feature.kind == "date":
        return text
    return int(text) if feature.kind == "integer" and text.lstrip("-").isdigit() else float(text)


def _within(low: Any, value: Any, high: Any) -> bool:
    return bool(low <= value <= high)
