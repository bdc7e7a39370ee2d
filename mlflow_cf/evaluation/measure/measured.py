"""Rows explained and measured, part by part: one line per row with every metric of its query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.files.answers import unreadable
from mlflow_cf.metrics import METRICS, Answers, Inliers, Options, Steps, Wishes, measure_columns
from mlflow_cf.proof.given import Verdicts, verdicts_on
from mlflow_cf.request.explaining import progress
from mlflow_cf.words.explanations import Explanations, Interrupted
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import phrases_in

PART: Final = 4_096  # rows explained, measured and let go of together; each part starts its helper processes anew
LEAST_S: Final = 1e-3  # of a part under a time limit: its predictions are made in any case
SPENT: Final = ("model_calls", "generations", "candidates")  # metrics that an explainer may report itself
FACTS: Final = ("status", "reason", "prediction", "probability", "answers")
OF_THE_NEAREST: Final = ("evaluations", "proof", "counterfactual", "changed", "text", "target_probability")
WEIGHT: Final = "protected_weight"  # whether a protected feature carries weight, where the policy names any
TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("status", "reason", "proof", "text"), "str"),
    **dict.fromkeys(("answers", "evaluations"), "int64"),
    **dict.fromkeys((*METRICS, WEIGHT, "probability", "target_probability"), "float64"),
}


@dataclass(frozen=True)
class Measuring:
    """How rows are explained and measured; all but the last four are as in `ExplainedModel.explain`.

    Attributes:
        explainer: another explainer than the model's own.
        count: counterfactuals per row.
        seed: seed of every row; None: the policy's.
        time_limit_s: seconds for the whole table, evenly shared by the rows; None: no clock.
        max_evaluations: rows scored per explained row; None: the policy's limit.
        certify: prove that nothing is nearer, as far as the limits allow.
        wishes: what users are ready to change, for `actionability` and `feasibility`.
        lof: whether plausibility is measured, or the `inliers_of` the model if they are known already.
        keep: is handed the explanations of each part, with the index of their rows, before they are let go of.
        part: rows that are explained, measured and let go of together.
    """

    explainer: ExplainerSource | None = None
    count: int = 1
    seed: int | None = None
    time_limit_s: float | None = None
    max_evaluations: int | None = None
    certify: bool = False
    wishes: Wishes | None = None
    lof: bool | Inliers | None = True
    keep: Callable[[pd.Index[Any], Sequence[Explanation]], object] | None = None
    part: int = PART


def measured_table(explained: ExplainedModel, rows: pd.DataFrame, options: Measuring) -> pd.DataFrame:
    """Return the parts of `measure_rows` as one table."""
    return pd.concat(list(measure_rows(explained, rows, options)))


def measure_rows(explained: ExplainedModel, rows: pd.DataFrame, options: Measuring) -> Iterator[pd.DataFrame]:
    """Explain rows (m, d) part by part and yield each part's table: one line per row, in order, with the rows' index.

    Columns are ``status``, ``reason``, ``prediction``, ``probability`` and ``answers`` (how many) of the row; one per
    metric, its value for this query and NaN where it says nothing; and ``evaluations`` with what the nearest answer is:
    ``proof``, ``counterfactual`` (its row as JSON), ``changed`` (names), ``text`` and ``target_probability``.
    ``protected_weight`` is 1 where a feature that the policy protects carries weight, where it protects any.
    Validity and constraints are asked of the model anew. But for ``seconds``, a line depends on nothing but its row.

    Raises:
        InputError: no rows, or options that do not fit.
        Interrupted: by Ctrl-C; what was found of the part under way is yielded first.
    """
    table = explained.space.read(rows)
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    options = replace(options, lof=inliers_of(explained) if options.lof is True else options.lof)  # learned once
    deadline = None if options.time_limit_s is None else time.perf_counter() + options.time_limit_s
    with progress(len(table), watched=len(table) > options.part) as count:
        for start in range(0, len(table), options.part):
            part = table.iloc[start : start + options.part]
            share = len(part) / (len(table) - start)
            granted_s = None if deadline is None else max(deadline - time.perf_counter(), LEAST_S) * share
            try:
                explanations = _explain(explained, part, options, granted_s)
            except Interrupted as stop:
                found = [at for at, one in enumerate(stop.explanations) if "interrupted" not in phrases_in(one.reason)]
                if found:
                    yield _measured(explained, part.iloc[found], [stop.explanations[at] for at in found], options)
                raise
            yield _measured(explained, part, explanations, options)
            count(len(part))


def measure_block(explained: ExplainedModel, rows: pd.DataFrame, options: Measuring) -> pd.DataFrame:
    """Explain and measure some rows (m, d) of many: their lines, as `measure_rows` yields them.

    Where the model can predict none of them, all are ``invalid``: they may stand among millions that it can predict.

    Args:
        explained: the model.
        rows: a table with the model's columns.
        options: how; a time limit is that of these rows, and `lof` is known or False.

    Raises:
        InputError: options that do not fit.
    """
    table = explained.space.read(rows)
    try:
        explanations = _explain(explained, table, options, options.time_limit_s)
    except InputError as error:
        explanations = unreadable(explained, table, error)
    return _measured(explained, table, explanations, options)


def _explain(explained: ExplainedModel, part: pd.DataFrame, how: Measuring, seconds: float | None) -> Explanations:
    return explained.explain(
        part,
        count=how.count,
        explainer=how.explainer,
        seed=how.seed,
        time_limit_s=seconds,
        max_evaluations=how.max_evaluations,
        certify=how.certify,
        reasons=bool(explained.policy.protected),
    )


def columns_of(explained: ExplainedModel) -> list[str]:
    """Return the columns of the lines that are measured of a model."""
    return [*FACTS, *METRICS, *OF_THE_NEAREST, *([WEIGHT] if explained.policy.protected else [])]


def inliers_of(explained: ExplainedModel) -> Inliers | None:
    """Return the background's outlier factor; None where its rows are made up column by column, or there is but one."""
    if not explained.policy.privacy.keeps_rows or len(explained.background) < 2:
        return None
    return Inliers.fit(explained.space, explained.bound_policy.background)


def _measured(
    explained: ExplainedModel, part: pd.DataFrame, explanations: Sequence[Explanation], how: Measuring
) -> pd.DataFrame:
    """Return the lines of a part."""
    if how.keep is not None:
        how.keep(part.index, explanations)
    space, X, _ = explained.space.encode_covered(part)
    one_by_one = list(explanations)
    ends = np.cumsum([0, *(len(explanation.counterfactuals) for explanation in one_by_one)]).tolist()
    codes, verdicts = _check(explained, space, part, explanations)
    queries = [
        Answers(
            space=space,
            x=x,
            Z=codes[start:end],
            valid=verdicts.valid[start:end],
            status=explanation.status,
            requested=how.count,
            satisfied=verdicts.lawful[start:end],
            inliers=how.lof if isinstance(how.lof, Inliers) else None,
            wishes=how.wishes,
            plans=tuple(
                Steps(tuple(step.effort for step in found.plan), tuple(step.discount for step in found.plan))
                for found in explanation.counterfactuals
                if found.plan
            ),
            spent=_spent(explanation),
        )
        for x, explanation, (start, end) in zip(X, one_by_one, pairwise(ends), strict=True)
    ]
    told: dict[str, Sequence[Any] | Floats] = {
        **{name: [getattr(one, name) for one in one_by_one] for name in FACTS[:-1]},
        "answers": np.diff(ends),
        **measure_columns(queries, Options(explained.policy.distance)),
        **dict(zip(OF_THE_NEAREST, zip(*map(_of_the_nearest, one_by_one), strict=True), strict=True)),
        WEIGHT: [float(bool(one.reasons.alarm)) if one.reasons.method else np.nan for one in one_by_one],
    }
    return pd.DataFrame(
        {name: pd.Series(told[name], part.index, TYPES.get(name, "object")) for name in columns_of(explained)}
    )


def _check(
    explained: ExplainedModel, space: FeatureSpace, part: pd.DataFrame, explanations: Sequence[Explanation]
) -> tuple[Floats, Verdicts]:
    """Ask the model and every constraint again about all answers of a part.

    Returns:
        Their codes (k, d), and whether each is valid and lawful (k,).
    """
    asked = [row for row, one in enumerate(explanations) for _ in one.counterfactuals]
    if not asked:
        nothing = np.empty(0, np.bool_)
        return np.empty((0, len(space))), Verdicts(nothing, nothing, nothing, nothing)
    if isinstance(explanations, Explanations):
        found = explanations.to_frame()[list(space.columns)]
    else:
        found = space.from_values([one.row for explanation in explanations for one in explanation.counterfactuals])
    required, policy = explained.context.required, explained.policy
    return space.encode(found), verdicts_on(required, explained.bound_policy, policy.target, part.iloc[asked], found)


def _of_the_nearest(explanation: Explanation) -> tuple[Any, ...]:
    """Return what `OF_THE_NEAREST` names."""
    nearest = min(explanation.counterfactuals, key=lambda found: found.distance, default=None)
    if nearest is None:
        return explanation.evaluations, "", None, [], "", None
    return (
        explanation.evaluations,
        nearest.proof,
        json.dumps(dict(nearest.row), ensure_ascii=False, allow_nan=False),
        [change.feature for change in nearest.changes],
        nearest.text,
        nearest.probability,
    )


def _spent(explanation: Explanation) -> Mapping[str, float]:
    facts = explanation.diagnostics
    known = {name: float(facts[name]) for name in SPENT if isinstance(facts.get(name), int | float)}
    return {**known, "seconds": float(facts["seconds"])} if "seconds" in facts else known
