"""Several linear models as one whose raw scores stand side by side, over the same raw numbers and levels.

Scalers become part of the weights, and imputed numbers part of what a missing value adds. That is the same model up to
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.kernels.dense import First
from mlflow_cf.structures.layers.columns import ClippedLine, IntervalColumn, MonotoneStep, NotOpenedError, NumberColumn
from mlflow_cf.structures.layers.network import Layers, LevelCodes, Source
from mlflow_cf.structures.structure import Link
from mlflow_cf.words.statements import say


@dataclass(frozen=True, eq=False)
class LinearModels:
    """What numbers, levels and missing values add to the raw scores of several linear models.

    Attributes:
        added: per feature: of a number (2, k), what one unit adds, and what a missing value adds; of others
            (levels + 2, k), what each level adds, then unseen ones, then missing values.
        bias: (k,) added to all raw scores; link: turns them into scores.
    """

    added: tuple[Floats, ...]
    bias: Floats
    link: Link

    @classmethod
    def of(cls, models: Sequence[Layers], space: FeatureSpace) -> LinearModels:
        """Return what linear models over the features of `space` add.

        Raises:
            NotOpenedError: one is no linear model, or encodes a number in another way than by scaling and imputing.
        """
        parts = [_one(model, space) for model in models]
        added = tuple(np.concatenate(rows, axis=1) for rows in zip(*(rows for rows, _ in parts), strict=True))
        return cls(added, np.concatenate([bias for _, bias in parts]), models[0].link)

    @classmethod
    def read(cls, merged: Layers, space: FeatureSpace) -> LinearModels:
        """Return what `structure` made a structure of."""
        table, added, at = merged.first.table, list[Floats](), 0
        for feature in space.features:
            size = 3 if feature.numeric else len(feature.levels) + 2
            rows = table[at : at + size]
            added.append(rows[[0, 2]] if feature.numeric else rows)
            at += size
        return cls(tuple(added), merged.first.bias, merged.link)

    def structure(self, space: FeatureSpace) -> Layers:
        """Return the models as one."""
        sources: list[tuple[Source, ...]] = []
        levels: list[int] = []
        for number, (feature, rows) in enumerate(zip(space.features, self.added, strict=True)):
            if feature.numeric:
                raw = NumberColumn(number)
                known = NumberColumn(number, (MonotoneStep(partial(_filled, 0.0), ClippedLine()),))
                missing = IntervalColumn(raw, np.empty(0), np.array([0.0, np.nan]))
                sources.append((known, missing))
                levels += [-1, 0]
            else:
                sources.append((LevelCodes(len(rows) - 2),))
                levels.append(len(rows) - 2)
        pairs = zip(space.features, self.added, strict=True)
        tables = [_with_none(rows) if feature.numeric else rows for feature, rows in pairs]
        sizes = [1 if count < 0 else count + 2 for count in levels]
        first = First(
            table=np.ascontiguousarray(np.concatenate([np.empty((0, len(self.bias))), *tables])),
            start=np.cumsum([0, *sizes])[:-1],
            levels=np.array(levels, dtype=np.int64),
            stop=np.cumsum([*map(len, sources)]),
            bias=self.bias,
        )
        return Layers(tuple(sources), first, (), (), "identity", self.link)


def _with_none(rows: Floats) -> Floats:
    """Return what one unit adds, then what a number adds for not being missing, which is nothing, and a missing one."""
    return np.stack([rows[0], np.zeros(rows.shape[1]), rows[1]])


def _filled(with_value: float, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), with_value, values)


def _one(model: Layers, space: FeatureSpace) -> tuple[list[Floats], Floats]:
    """Return what the features add to one model's raw scores, and its bias."""
    if model.weights:
        raise NotOpenedError(say("not_merged", kind=model.kind))
    added, bias = list[Floats](), model.first.bias.copy()
    for feature, (start, stop) in zip(space.features, pairwise([0, *model.first.stop.tolist()]), strict=True):
        rows = np.zeros((2 if feature.numeric else len(feature.levels) + 2, len(bias)))
        for place, source in zip(range(start, stop), model.sources[len(added)], strict=True):
            first, count = int(model.first.start[place]), int(model.first.levels[place])
            table = model.first.table[first : first + max(count + 2, 1)]
            if isinstance(source, LevelCodes):
                rows += table
                continue
            line = source.affine if isinstance(source, NumberColumn) else None
            if not isinstance(source, NumberColumn) or line is None or np.isfinite([line.low, line.high]).any():
                raise NotOpenedError(say("no_formula"))
            rows[0] += line.slope * table[0]
            bias += line.offset * table[0]
            rows[1] += (float(source.encode(np.array([np.nan]))[0]) - line.offset) * table[0]
        added.append(rows)
    return added, bias
