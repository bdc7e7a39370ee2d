"""A structure is used only if it agrees with the model it was read from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.quiet import quietly
from mlflow_cf.structures.capabilities import SupportsParts, ends_of, is_ordered, is_steady, lacking
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.structure import TIE, Structure, score_rows
from mlflow_cf.version import VERSION
from mlflow_cf.words.statements import say

FEW_ROWS: Final = 20  # that show what a model is made of
MOST_ROWS: Final = 1_000  # of each of the three kinds that are compared
_logger = logging.getLogger(__name__)
DOUBLE: Final = 1e-6  # tolerance of models that calculate in float64, of which rounding turns no label but at a tie
OFTEN: Final = 1_000  # times the worst difference of scores that were compared, shares among them, raw ones may differ
EDGES, MISSING = 0.5, 0.1  # shares of values of the third kind that are next to thresholds, and missing


@dataclass(frozen=True, eq=False)
class Opened:
    """The structure of a model, or why there is none.

    Attributes:
        structure: None if the model could not be opened, or if what was opened disagreed with it.
        note: what was found, for `describe()`.
        rows: how many rows were compared with the model; all labels agreed but for `ties`.
        worst: largest difference of a score on them, relative to max(1, |score|).
        ties: labels that differed by rounding alone, between scores as near to each other as scores may be off.
        surrogate: what imitates a model that could not be opened, to guide searches; None: nothing does.
        levels: the levels that the model tells apart, by the name of a feature, without those that the structure has
            codes for; see `OpenModel.levels`.
        judging: whether the structure itself is the judge, of models that know no other levels than it has codes for.
    """

    structure: Structure | None
    note: str
    rows: int = 0
    worst: float = 0.0
    ties: int = 0
    surrogate: Structure | None = None
    levels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judging: bool = False

    @cached_property
    def steady(self) -> bool:
        """Whether there is a structure whose raw scores of a row are the same in every batch."""
        return self.structure is not None and is_steady(self.structure)

    def rounding(self, tolerance: float) -> float:
        """Return how far raw scores may be from those of the model about a row alone, near where it decides.

        They agree up to a `tolerance`. Those of models that calculate in float64 were compared, and agree much closer.
        """
        known = tolerance <= DOUBLE and self.structure is not None and self.rows > 0
        return min(tolerance, max(TIE, OFTEN * self.worst)) if known else tolerance

    def reads(self, feature: str, level: object) -> bool:
        """Whether the structure reads a level as the model does that the background lacks."""
        known = self.levels.get(feature)
        return self.judging or (isinstance(level, str) and known is not None and level not in known)

    def parity(self, tolerance: float) -> dict[str, float] | None:
        """Return how the comparison went, for `describe()`."""
        if self.structure is None:
            return None
        return {"rows": self.rows, "worst_difference": self.worst, "tolerance": tolerance, "ties": self.ties}


def open_structure(
    judge: Judge, space: FeatureSpace, background: Floats, outcome: Outcome, *, briefly: bool = False
) -> Opened:
    """Compile the judge's model and compare it with the judge.

    Compared are background rows as they are, with their columns shuffled, and with values at which the structure
    changes its answer: the numbers next to thresholds, and missing values.

    Args:
        judge: the model, and whether its largest score decides.
        space: its features.
        background: (n, d) coded rows, and `outcome`, what the judge says about them.
        briefly: compare background rows as they are alone: another fit of the same estimator was compared with all.
    """
    model = judge.model
    if model.compile is None:
        return Opened(None, say("closed"), surrogate=_surrogate(model, space, background, outcome))
    if not model.regression and model.score is None:
        return Opened(None, say("labels_only"))
    if not model.regression and not judge.argmax_decides:
        return Opened(None, say("other_label_rule"))
    rng = np.random.default_rng(0)  # fixed: which rows are compared is part of the check, not of a search
    chosen = np.sort(rng.permutation(len(background))[:MOST_ROWS])
    rows, said = background[chosen], outcome.take(chosen)
    try:
        structure, levels = _compiled(model, space, space.decode(rows[:FEW_ROWS]))
        shuffled = np.column_stack([rng.permutation(column) for column in rows.T])
        others = () if briefly else _shuffled_and_edges(structure, judge, space, shuffled, rng)
        compared = ((rows, said), *others)
        found = [_difference(structure, model.tolerance, table, expected) for table, expected in compared]
    except NotOpenedError as error:
        return Opened(None, say("not_opened", what=error.what))
    except Exception as error:  # noqa: BLE001  an exotic model must still be explained, only slower
        return Opened(None, say("opening_failed", kind=_named(error)))
    count = sum(len(table) for table, _ in compared)
    known = f"{structure.kind}; same as the model on {count:,} rows"
    if not isinstance(structure, SupportsParts):
        known += "; its structure has no `parts`, so no program can express it"
    worst, ties = max(worst for worst, _ in found), sum(ties for _, ties in found)
    return Opened(structure, known, count, worst, ties, levels=levels)


def _compiled(
    model: OpenModel, space: FeatureSpace, rows: pd.DataFrame
) -> tuple[Structure, Mapping[str, frozenset[str]]]:
    """Return the structure of a model, and the levels that it tells apart.

    Of the levels those are left out that the structure has codes for.

    Raises:
        NotOpenedError: it has none, or one that lacks a question that structures answer.
    """
    if model.compile is None:
        raise NotOpenedError(say("closed"))
    structure = model.compile(space.for_model, rows)
    if lost := lacking(structure):  # other packages are written for a version of this one
        raise NotOpenedError(say("other_version", lost=tuple(lost), version=VERSION))
    levels = {} if model.levels is None else model.levels(space, rows)
    return structure, {name: known.difference(space[name].model_levels) for name, known in levels.items()}


def with_levels_of(model: OpenModel, space: FeatureSpace, rows: pd.DataFrame) -> FeatureSpace:
    """Return features with the levels that a model tells apart and the background lacks.

    Args:
        model: it can only be asked for these where it can be opened.
        space: the features; rows: those of the background.
    """
    if model.levels is None:
        return space
    try:
        return space.with_model_levels(model.levels(space, rows.head(FEW_ROWS)))
    except Exception:  # noqa: BLE001  whether it can be opened is found later, and said with a reason
        return space


def _surrogate(model: OpenModel, space: FeatureSpace, background: Floats, outcome: Outcome) -> Structure | None:
    """Return what imitates a model; None where nothing can, or what does lacks a question that structures answer."""
    if model.imitate is None:
        return None
    try:
        found = model.imitate(space, space.decode(background), outcome)
    except Exception as error:  # noqa: BLE001  a guide saves calls, and no more
        _logger.warning("nothing could be fitted that guides searches (%s)", _named(error))
        return None
    return None if lacking(found) else found


def _named(error: Exception) -> str:
    """Return the kind of an error, and the name that was missing: of the code's own, never a value."""
    kind = type(error).__name__
    match error:
        case AttributeError(name=str(name), obj=owner):
            return f"{kind}: {type(owner).__name__} has no {name}"
        case NameError(name=str(name)) | ImportError(name=str(name)):
            return f"{kind}: there is no {name}"
    return kind


def _shuffled_and_edges(
    structure: Structure, judge: Judge, space: FeatureSpace, rows: Floats, rng: np.random.Generator
) -> list[tuple[Floats, Outcome]]:
    """Return shuffled `rows`, the same with many values at which the structure changes its answer, and the judge's.

    The judge is asked about both together: most of a call to a pipeline does not depend on how many rows it gets.
    A model may refuse values it was not fitted on, such as missing ones, or numbers that are categories to it. So less
    and less is tried, down to the values of the background.
    """
    replaced = rng.random(rows.shape) < EDGES
    ordered = np.array([is_ordered(structure, column) for column in range(len(space))], dtype=np.bool_)
    for missing, near in ((True, ordered | True), (False, ordered | True), (False, ordered)):
        edges = rows.copy()
        for column, feature in enumerate(space.features):
            values = _edges(structure, column, feature) if near[column] else feature.values
            values = values if len(values) else rows[:, column]  # of a constant that no test looks at
            if near[column]:
                values = np.append(values, len(feature.levels) + np.arange(len(feature.model_levels)))
            edges[replaced[:, column], column] = rng.choice(values, replaced[:, column].sum())
            if feature.missing or (missing and feature.nullable):
                edges[rng.random(len(rows)) < MISSING, column] = np.nan
        with suppress(Exception), quietly():  # any model, any error; about values that only this check asks about
            said = judge.verdict(space.for_model.decode(np.concatenate([rows, edges])))
            if np.isfinite(_truth(said)).all():
                return [(rows, said.take(slice(0, len(rows)))), (edges, said.take(slice(len(rows), None)))]
    return [(rows, judge.verdict(space.decode(rows)))]


def _edges(structure: Structure, column: int, feature: Feature) -> Floats:
    """Return the values next to which a structure changes its answer, or those of the background if there are none."""
    ends = ends_of(structure, column)
    if not feature.numeric or feature.kind == "date" or ends is None:
        return feature.values
    near = _neighbours(ends[np.isfinite(ends)], feature)
    return near if len(near) else feature.values


def _neighbours(cuts: Floats, feature: Feature) -> Floats:
    """Return the numbers around `cuts` that a raw column can hold: the last one up to a cut, and the first above it."""
    dtype = feature.stored
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        below = np.floor(cuts)
        return np.unique(np.clip(np.append(below, below + 1), max(bounds.min, -(2.0**53)), min(bounds.max, 2.0**53)))
    if dtype.kind != "f":
        dtype = np.dtype(np.float64)
    with np.errstate(over="ignore"):
        near = cuts.astype(dtype)
        up, down = dtype.type(np.inf), dtype.type(-np.inf)
        below = np.where(near > cuts, np.nextafter(near, down), near)
        both = np.append(below, np.nextafter(below, up)).astype(np.float64)
    return both[np.isfinite(both)]


def _difference(structure: Structure, tolerance: float, rows: Floats, expected: Outcome) -> tuple[float, int]:
    """Return the largest difference from the judge, and how many labels differ by rounding; refuse all else."""
    scores = score_rows(structure, rows)
    truth = _truth(expected)
    if scores.shape != truth.shape:
        raise NotOpenedError(say("other_shape"))
    worst = float(np.max(np.abs(scores - truth) / np.maximum(1.0, np.abs(truth))))
    if not worst <= tolerance:
        raise NotOpenedError(say("scores_differ", worst=float(worst)))
    if expected.scores is None:
        return worst, 0
    differs = scores.argmax(axis=1) != expected.codes
    if _decided(scores, tolerance)[differs].any():
        raise NotOpenedError(say("label_differs"))
    return worst, int(differs.sum())


def _decided(scores: Floats, tolerance: float) -> NDArray[np.bool_]:
    """Return (m,) which of scores (m, classes) are so far from a tie that rounding cannot turn the label.

    Where a library calculates in float32, both scores may be off by the tolerance. Searches decide nothing within twice
    this distance of a tie: there, the judge is asked (`SCORE_TOLERANCES`).
    """
    if scores.shape[1] < 2:
        return np.ones(len(scores), dtype=np.bool_)
    second, top = np.partition(scores, -2, axis=1)[:, -2:].T
    rounding = 2 * tolerance if tolerance > DOUBLE else TIE
    return np.asarray(top - second > rounding * np.maximum(1.0, np.abs(top)))


def _truth(said: Outcome) -> Floats:
    return said.values[:, None] if said.scores is None else said.scores
