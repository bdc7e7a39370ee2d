"""What a reviewer reads first: the fewest common changes that turn the most rows.

Common are changes that mean the same for every row. The page `docs/summary.md` tells how they are chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.summary.asking import Answer, Asking, SummaryOptions
from mlflow_cf.evaluation.summary.choosing import Choosing
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.evaluation.summary.result import Cohort, Cohorts
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.reporting.groups import GROUP
from mlflow_cf.request.explaining import progress
from mlflow_cf.validation import validated

__all__ = ["Cohort", "Cohorts", "SummaryOptions", "cohorts"]

TABLE_SHARE: Final = 0.7  # of the time: without a table there is nothing to choose from


def cohorts(
    explained: ExplainedModel,
    rows: pd.DataFrame,
    *,
    most: int = 5,
    groups: pd.Series | None = None,
    counterfactuals: Sequence[Answer | None] | None = None,
    options: SummaryOptions | Mapping[str, Any] | None = None,
) -> Cohorts:
    """Return the common changes that turn the most rows, each verified by the model for every row it counts.

    A common change moves one or two features: to a level, or up or down to a number; who is there already keeps what
    they have. Of a family of such changes the one is chosen that turns the most rows without breaking a constraint,
    then the one that turns the most others, and so on; among equals the one with the least mean distance, then the one
    of fewer features, then by its text. Where another choice of as many changes turns more rows, and is found, it is
    returned instead. `Cohorts.bound` says how many rows no choice from this family can exceed.

    Args:
        explained: the model with its target and constraints.
        rows: (m, d) as for `ExplainedModel.explain`; those that meet the target, or cannot be read, are left out.
        most: how many changes.
        groups: (m,) the group of every row.
        counterfactuals: (m,) the answer for every row by feature, None without; None: they are searched, if needed.
        options: which changes are compared, and how long; see `SummaryOptions`.

    Raises:
        InputError: no rows, or arguments that do not fit.
    """
    if most < 1:
        raise InputError("most", f"{most} is less than 1", "ask for one change at least")
    chosen = options if isinstance(options, SummaryOptions) else validated(SummaryOptions, options or {}, "options")
    table = explained.space.read(rows)
    _check_rows(explained, table, groups, counterfactuals)
    clock = Clock(chosen.time_limit_s)
    refused = RefusedRows.of(explained, table, groups)
    if not len(refused):
        return Cohorts((), 0, refused.sizes, most)

    def answers() -> Sequence[Answer | None]:
        places = refused.places.tolist()
        if counterfactuals is not None:
            return [counterfactuals[place] for place in places]
        found = explained.explain(table.iloc[places], time_limit_s=clock.part(TABLE_SHARE).left_s)
        return [one.counterfactuals[0].row if one.counterfactuals else None for one in found]

    with progress(len(refused), watched=True, doing="comparing") as count:
        within = Clock(clock.part(TABLE_SHARE).time_limit_s, count, clock.started)
        asking = Asking(refused, answers, counterfactuals is not None, chosen.max_evaluations, within)
        known = asking.table(chosen.family)
    return Choosing(refused, known, most, clock).cohorts()


def _check_rows(
    explained: ExplainedModel,
    table: pd.DataFrame,
    groups: pd.Series | None,
    counterfactuals: Sequence[Answer | None] | None,
) -> None:
    """Refuse a table without rows, and groups or answers that are not those of its rows.

    Raises:
        InputError: one of these.
    """
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    for path, given in (("groups", groups), ("counterfactuals", counterfactuals)):
        if given is not None and len(given) != len(table):
            raise InputError(path, f"{len(given):,} for {len(table):,} rows", "give one for every row")
    for at, answer in enumerate(counterfactuals or ()):
        if lacking := [name for name in explained.space.names if answer is not None and name not in answer]:
            path = f"counterfactuals[{at}].{lacking[0]}"
            raise InputError(path, "feature is missing", "give every feature a value")


def of_lines(
    explained: ExplainedModel,
    rows: pd.DataFrame,
    lines: pd.DataFrame,
    most: int = 5,
    options: SummaryOptions | Mapping[str, Any] | None = None,
) -> Cohorts:
    """Return the `cohorts` of rows (m, d) that were measured, by the nearest answers and the groups in their lines."""
    answers = [None if pd.isna(answer) else json.loads(answer) for answer in lines["counterfactual"]]
    columns = [column for column in lines.columns if column.startswith(GROUP)]
    groups = lines[columns].agg(", ".join, axis=1) if columns else None
    return cohorts(explained, rows, most=most, groups=groups, counterfactuals=answers, options=options)
