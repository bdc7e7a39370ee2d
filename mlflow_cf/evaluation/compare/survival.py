"""Survival: what other versions say of the counterfactuals that one version has issued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.evaluation.compare.paired import Bootstrap, means
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Label, Outcome
from mlflow_cf.policy import Target
from mlflow_cf.request.rows import CodedRows, Row, read_rows


@dataclass(frozen=True, eq=False)
class Issued:
    """The nearest counterfactuals that a model has found for a table.

    Attributes:
        places: (k,) numbers of the rows they were found for, among m.
        table: (k, c) the rows of the table with what they change, in the columns of the table and of the model.
        target: what was promised; how sure it was to be is no part of that.
        predictions: (k,) what the model said of the rows themselves.
        probability: (k,) of the wanted outcome, as the model gave it with each counterfactual; NaN if it gave none.
    """

    places: NDArray[np.intp]
    table: pd.DataFrame
    target: Target
    predictions: tuple[Label, ...]
    probability: Floats

    @classmethod
    def of(cls, explained: ExplainedModel, measured: pd.DataFrame, rows: pd.DataFrame) -> Issued:
        """Return what was issued, according to the measured table, for `rows` (m, c); both are numbered from 0."""
        found = measured[measured["counterfactual"].notna()]
        values = explained.space.from_values([json.loads(text) for text in found["counterfactual"]])
        kept = rows.loc[found.index, [name for name in rows.columns if name not in values.columns]]
        return cls(
            found.index.to_numpy(np.intp),
            pd.concat([values.set_axis(found.index, axis=0), kept], axis=1),
            explained.policy.target.model_copy(update={"min_probability": None}),
            tuple(found["prediction"]),
            found["target_probability"].to_numpy(np.float64),
        )


def judged(issued: Issued, judge: ExplainedModel, rows: int) -> pd.DataFrame:
    """Ask another model about issued counterfactuals.

    Features that the issuing model does not know are the row's own.

    Returns:
        (rows, 2), numbered from 0: ``survival``, 1 where the model predicts what was promised, else 0; and
        ``probability_lost``, by how much less likely it finds that. NaN where nothing was issued or cannot be asked.

    Raises:
        InputError: the model can never predict what was promised, or lacks a column.
    """
    issued.target.check(judge.model)
    survived, lost = np.full((2, rows), np.nan)
    frame = judge.space.select(issued.table).reset_index(drop=True)
    answered = read_rows(judge.judge, CodedRows.of(judge.space, frame)) if len(frame) else []
    # the class of what was said of each row, where the promise was any other
    own = judge.model.codes_of(issued.predictions) if issued.target.differs else np.full(len(issued.places), -1)
    for label in np.unique(own):
        places = [at for at in np.flatnonzero(own == label) if answered[at].outcome is not None]
        outcome = _joined([answered[at] for at in places])
        target = BoundTarget(issued.target, judge.model, int(label))
        likely = np.array(target.probability(outcome), dtype=np.float64)
        survived[issued.places[places]] = target.met(outcome)
        lost[issued.places[places]] = issued.probability[places] - likely
    return pd.DataFrame({"survival": survived, "probability_lost": lost})


def survival(verdict: pd.DataFrame, groups: pd.DataFrame | None, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the survival of one version's counterfactuals under another one.

    Args:
        verdict: what `judged` returns.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.

    Returns:
        One line per group: group, answers, survival (share) with low and high, probability_lost (mean) with lost_low
        and lost_high.
    """
    table = means(verdict, groups, bootstrap)
    kept, lost = (table[table["measure"] == name].reset_index(drop=True) for name in verdict.columns)
    return pd.DataFrame(
        {
            "group": kept["group"],
            "answers": kept["rows"],
            "survival": kept["mean"],
            "low": kept["low"],
            "high": kept["high"],
            "probability_lost": lost["mean"],
            "lost_low": lost["low"],
            "lost_high": lost["high"],
        }
    )


def _joined(rows: Sequence[Row]) -> Outcome:
    outcomes = [row.outcome for row in rows if row.outcome is not None]
    codes = np.concatenate([np.empty(0, np.intp), *(one.codes for one in outcomes)])
    scores = [one.scores for one in outcomes if one.scores is not None]
    values = np.concatenate([np.empty(0), *(one.values for one in outcomes)])
    return Outcome(codes, np.vstack(scores) if scores else None, values)
