"""A structure is used only if it agrees with the model it was read from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.judge import Judge, Outcome
from mlflow_cf.structures.columns import NotOpenedError
from mlflow_cf.structures.structure import Structure, score_rows

MOST_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class Opened:
    """The structure of a model, or why there is none.

    Attributes:
        structure: None if the model could not be opened, or if what was opened disagreed with it.
        note: what was found, for `describe()`.
        rows: how many rows were compared with the model; all labels agreed.
        worst: largest difference of a score on them, relative to max(1, |score|).
    """

    structure: Structure | None
    note: str
    rows: int = 0
    worst: float = 0.0


def open_structure(judge: Judge, space: FeatureSpace, background: Floats, outcome: Outcome) -> Opened:
    """Compile the judge's model and compare it on background rows, as they are and with their columns shuffled.

    Args:
        judge: the model, and whether its largest score decides.
        space: its features.
        background: (n, d) coded rows, and `outcome`, what the judge says about them.
    """
    model = judge.model
    if model.compile is None:
        return Opened(None, "scored through the model itself")
    if not model.regression and not judge.argmax_decides:
        return Opened(None, "scored through the model itself: its label is not that of the largest score")
    rng = np.random.default_rng(0)  # fixed: which rows are compared is part of the check, not of a search
    chosen = np.sort(rng.permutation(len(background))[:MOST_ROWS])
    rows, said = background[chosen], outcome.take(chosen)
    try:
        structure = model.compile(space, space.decode(rows[:20]))
        shuffled = np.column_stack([rng.permutation(column) for column in rows.T])
        compared = ((rows, said), (shuffled, judge.verdict(space.decode(shuffled))))
        worst = max(_difference(structure, model.tolerance, table, expected) for table, expected in compared)
    except NotOpenedError as error:
        return Opened(None, f"scored through the model itself: not opened, {error}")
    except Exception as error:  # noqa: BLE001  an exotic model must still be explained, only slower
        return Opened(None, f"scored through the model itself: opening it failed ({type(error).__name__})")
    return Opened(structure, f"{structure.kind}; same as the model on {2 * len(rows):,} rows", 2 * len(rows), worst)


def _difference(structure: Structure, tolerance: float, rows: Floats, expected: Outcome) -> float:
    """Return the largest difference from the judge; refuse one label, or more than the tolerance."""
    scores = score_rows(structure, rows)
    truth = expected.values[:, None] if expected.scores is None else expected.scores
    if scores.shape != truth.shape:
        raise NotOpenedError("scores of another shape")
    worst = float(np.max(np.abs(scores - truth) / np.maximum(1.0, np.abs(truth))))
    if not worst <= tolerance:
        raise NotOpenedError(f"scores differ by {worst:.1e}")
    if expected.scores is not None and not np.array_equal(scores.argmax(axis=1), expected.codes):
        raise NotOpenedError("a label differs")
    return worst
