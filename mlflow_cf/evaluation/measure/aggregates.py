"""Means over queries, how sure they are, counts and shares: of all rows, and of each group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, get_args

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.lines import members_of
from mlflow_cf.evaluation.measure.measured import WEIGHT
from mlflow_cf.metrics import METRICS, aggregate
from mlflow_cf.reporting.groups import GROUP, column_of
from mlflow_cf.words.phrases import MARKS
from mlflow_cf.words.reasons import NOTHING_LEFT
from mlflow_cf.words.result import Proof, Status
from mlflow_cf.words.statements import in_language

PREFIX: Final = "cf"
LEAST_SURE: Final = 10  # queries of a group that a standard error takes
STATUSES: Final = tuple(status for status in get_args(Status) if status not in ("busy", "skipped"))
GAPS: Final = ("coverage", "mixed")  # metrics whose largest difference between two groups is told
NOT_COUNTED: Final = ("already", "skipped")  # by coverage
# Columns of lines -> the metrics that are their means.
MEANS: Final[Mapping[str, str]] = {
    **{name: name for name in METRICS},
    "evaluations": "evaluations",
    WEIGHT: "protected_weight_share",
    lines.CORRECT: "accuracy",
    lines.ABSOLUTE_ERROR: "mean_absolute_error",
}
NAME: Final = 250  # characters of a metric's name that MLflow keeps
_ODD: Final = re.compile(r"[^\w.\- ]")


class Figure(NamedTuple):
    """One figure of an evaluation; `group` is "" for all rows."""

    explainer: str
    group: str
    metric: str
    value: float
    standard_error: float | None
    queries: int


COLUMNS: Final = Figure._fields


def aggregates(path: Path, explainer: str = "") -> pd.DataFrame:
    """Return all figures of written lines as a table of `COLUMNS`; ``group`` is "" for all rows.

    Metrics are means over the queries that have a value, with standard deviation (ddof 1) / sqrt(queries); a metric
    without any value has no line. ``status/...`` are counts of rows, ``proved/...`` shares of the rows with an answer,
    ``infeasible`` is a share of those that coverage counts, ``fixed_share`` that of `fixed_rows` among them, and
    ``seconds_p50`` and ``seconds_p95`` are percentiles; ``gap/...`` are those of `gaps`.
    A group with fewer than 10 queries has no standard error.
    """
    names = pq.read_schema(path).names
    groups = pd.read_parquet(path, columns=[name for name in names if name.startswith(GROUP)])
    members = members_of(groups.rename(columns=lambda name: name.removeprefix(GROUP)), lines.size(path))
    found: list[Figure] = []
    for name, metric in MEANS.items():
        if name in names:
            column = pd.read_parquet(path, columns=[name])[name].to_numpy(np.float64)
            for group, rows in members.items():
                one = aggregate(column[rows & ~np.isnan(column)])
                if one.mean is not None:
                    error = one.standard_error if not group or one.queries >= LEAST_SURE else None
                    found.append(Figure(explainer, group, metric, one.mean, error, one.queries))
    facts = pd.read_parquet(path, columns=["status", "reason", "proof", "answers", "seconds"])
    for group, rows in members.items():
        found += _counts(explainer, group, facts[rows])
    return figures_table([*found, *gaps(found, groups.columns)])


def gaps(figures: Sequence[Figure], columns: Iterable[str]) -> Iterator[Figure]:
    """Yield ``gap/...`` of one explainer's figures: the largest difference between two groups of one column.

    Groups of fewer than 10 queries do not count; without two others there is no gap.

    Args:
        figures: of all groups.
        columns: by which rows are grouped, as they begin the lines' names of groups.
    """
    names = [name.removeprefix(GROUP) for name in columns]
    means: dict[str, dict[str, list[Figure]]] = {metric: {} for metric in GAPS}
    for figure in figures:
        if figure.group and figure.metric in means and figure.queries >= LEAST_SURE:
            means[figure.metric].setdefault(column_of(figure.group, names), []).append(figure)
    for metric, known in means.items():
        found = [own for own in known.values() if len(own) > 1]
        if found:
            widest = max(found, key=_spread)
            queries = sum(figure.queries for figure in widest)
            yield Figure(widest[0].explainer, "", f"gap/{metric}", _spread(widest), None, queries)


def _spread(figures: Sequence[Figure]) -> float:
    values = [figure.value for figure in figures]
    return max(values) - min(values)


def figures_table(figures: Iterable[Figure]) -> pd.DataFrame:
    """Return figures as a table of `COLUMNS`."""
    return pd.DataFrame(figures, columns=list(COLUMNS)).astype({"standard_error": "float64"})


def flat(table: pd.DataFrame, *, by_explainer: bool) -> dict[str, float]:
    """Return figures by the names of metrics.

    ``cf/coverage`` of all rows, ``cf/coverage/sex.Female`` of a group, ``cf/standard_error/coverage`` and
    ``cf/queries/coverage`` of a mean; in a bake-off ``cf/geco/coverage``. What MLflow takes in no name becomes ``_``.
    """
    metrics: dict[str, float] = {}
    for figure in map(Figure._make, table[list(COLUMNS)].itertuples(index=False)):
        explainer, group = written(figure.explainer), written(figure.group)
        prefix = f"{PREFIX}/{explainer}" if by_explainer else PREFIX
        name = f"{figure.metric}/{group}" if group else figure.metric
        own = {f"{prefix}/{name}": figure.value}
        if figure.metric in MEANS.values():
            if not figure.group:
                own[f"{prefix}/queries/{name}"] = figure.queries
            if figure.standard_error is not None and not np.isnan(figure.standard_error):
                own[f"{prefix}/standard_error/{name}"] = figure.standard_error
        metrics |= {key[:NAME]: float(value) for key, value in own.items()}
    return metrics


def written(name: str) -> str:
    """Return a name as it stands in the names of metrics."""
    return _ODD.sub("_", name)


def fixed_rows(lines: pd.DataFrame) -> pd.Series[bool]:
    """Return which of written lines are rows that no lawful action turns, as is proved.

    What an explainer's own restrictions rule out alone is not among them.
    """
    fixed = lines["status"] == "infeasible"
    for language in MARKS:  # lines hold text, in the language of the policy
        fixed &= ~lines["reason"].str.contains(in_language(NOTHING_LEFT, language), regex=False)
    return fixed


def _counts(explainer: str, group: str, facts: pd.DataFrame) -> list[Figure]:
    status = facts["status"]
    figures = [("rows", float(len(facts)), len(facts))]
    figures += [(f"status/{one}", float((status == one).sum()), len(facts)) for one in STATUSES]
    counted = ~status.isin(NOT_COUNTED)
    if counted.any():
        figures.append(("infeasible", float((status[counted] == "infeasible").mean()), int(counted.sum())))
        figures.append(("fixed_share", float(fixed_rows(facts)[counted].mean()), int(counted.sum())))
    answered = facts.loc[facts["answers"] > 0, "proof"]
    if len(answered):
        figures += [(f"proved/{one}", float((answered == one).mean()), len(answered)) for one in get_args(Proof)]
    seconds = facts["seconds"].dropna()
    if len(seconds):
        figures += [(f"seconds_p{q}", float(np.percentile(seconds, q)), len(seconds)) for q in (50, 95)]
    return [Figure(explainer, group, name, value, None, queries) for name, value, queries in figures]
