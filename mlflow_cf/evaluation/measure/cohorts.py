"""What a reviewer reads first: the fewest common changes that turn the most rows.

Common are changes that mean the same for every row. The page `docs/summary.md` tells how they are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.summary.asking import MOST_EVALUATIONS, Answer, Asking, FamilyName
from mlflow_cf.evaluation.summary.choosing import Choosing
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.evaluation.summary.result import Cohort, Cohorts
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.request.explaining import progress

__all__ = ["Cohort", "Cohorts", "cohorts"]

TABLE_SHARE = 0.7  # of the time: without a table there is nothing to choose from


def cohorts(
    explained: ExplainedModel,
    rows: pd.DataFrame,
    *,
    most: int = 5,
    groups: pd.Series | None = None,
    counterfactuals: Sequence[Answer | None] | None = None,
    family: FamilyName | None = None,
    time_limit_s: float | None = None,
    max_evaluations: int = MOST_EVALUATIONS,
) -> Cohorts:
    """Return the common changes that turn the most rows, each verified by the model for every row it counts.

    A common change moves one or two features: to a level, or up or down to a number; who is there already keeps what
    they have. Of a family of such changes the one is chosen that turns the most rows without breaking a constraint,
    then the one that turns the most others, and so on; among equals the one with the least mean distance, then the one
    of fewer features, then by its text. Where another choice of as many changes turns more rows, and is found, it is returned instead. `Cohorts.bound`
    says how many rows no choice from this family can exceed.

    Args:
        explained: the model with its target and constraints.
        rows: (m, d) as for `ExplainedModel.explain`; those that meet the target, or cannot be read, are left out.
        most: how many changes.
        groups: (m,) the group of every row.
        counterfactuals: (m,) the answer for every row by feature, None without; None: they are searched, if needed.
        family: which changes are compared: ``all`` to values that may be proposed, on a grid where these are too many;
            those that most ``answers`` for single rows are cases of, at most 200; None: all where the model is opened,
            or can be asked about all of them and `counterfactuals` are not given.
        time_limit_s: seconds; rows that were not reached count as turned in the bound.
        max_evaluations: how many changed rows a model that is not opened is asked about, verification not counted.

    Raises:
        InputError: no rows, or arguments that do not fit.
    """
    if most < 1:
        raise InputError("most", f"{most} is less than 1", "ask for one change at least")
    if time_limit_s is not None and not time_limit_s > 0:
        raise InputError("time_limit_s", f"{time_limit_s} is not above 0", "give seconds, or None for no limit")
    if max_evaluations < 1:
        raise InputError("max_evaluations", f"{max_evaluations} is less than 1", "allow one evaluation at least")
    if family not in (None, "all", "answers"):
        raise InputError("family", f"{family!r} is no family of changes", "use 'all', 'answers' or None")
    table = explained.space.read(rows)
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    for path, given in (("groups", groups), ("counterfactuals", counterfactuals)):
        if given is not None and len(given) != len(table):
            raise InputError(path, f"{len(given):,} for {len(table):,} rows", "give one for every row")
    _check_answers(explained, counterfactuals or ())
    clock = Clock(time_limit_s)
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
        known = Asking(refused, answers, counterfactuals is not None, max_evaluations, within).table(family)
    return Choosing(refused, known, most, clock).cohorts()


def _check_answers(explained: ExplainedModel, counterfactuals: Sequence[Answer | None]) -> None:
    """Refuse answers that lack a feature.

    Raises:
        InputError: one does.
    """
    for at, answer in enumerate(counterfactuals):
        if lacking := [name for name in explained.space.names if answer is not None and name not in answer]:
            path = f"counterfactuals[{at}].{lacking[0]}"
            raise InputError(path, "feature is missing", "give every feature a value")
