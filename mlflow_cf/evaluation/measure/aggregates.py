"""Means over queries, how sure they are, counts and shares: of all rows, and of each group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple, get_args

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.lines import members_of
from mlflow_cf.evaluation.measure.measured import WEIGHT
from mlflow_cf.evaluation.measure.moments import Moments
from mlflow_cf.features import Floats
from mlflow_cf.metrics import METRICS
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
FACTS: Final = ("status", "reason", "proof", "answers", "seconds")  # columns of lines that counts need
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


@dataclass(frozen=True, eq=False)
class Summed:
    """What figures are made of: sums of measured lines by group.

    Attributes:
        groups: (g,) their names; the first one is "", all rows.
        columns: (k,) names of columns as `MEANS` and `shares` have them.
        moments: (g, k) of these columns.
        seconds: (g, 2) the median and the 95th percentile; NaN where nothing took time.
    """

    groups: Sequence[str]
    columns: Sequence[str]
    moments: Moments
    seconds: Floats

    def of(self, column: str) -> tuple[int, float, float, float]:
        """Return of all rows how many have a value in a column; its mean, least and largest value."""
        k, own = list(self.columns).index(column), self.moments
        return int(own.count[0, k]), float(own.mean[0, k]), float(own.least[0, k]), float(own.largest[0, k])


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
    inside = list(members.values())
    columns = [name for name in MEANS if name in names]
    parts: list[Moments] = []
    start, counted = 0, pd.DataFrame()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(lines.ROWS_AT_ONCE, columns=list(dict.fromkeys([*columns, *FACTS]))):
            part, rows = batch.to_pandas(), slice(start, start := start + batch.num_rows)
            counted = shares(part[list(FACTS)])
            values = np.hstack([part[columns].to_numpy(np.float64), counted.to_numpy(np.float64)])
            parts.append(Moments.of(values, [own[rows] for own in inside]))
    seconds = pd.read_parquet(path, columns=["seconds"])["seconds"].to_numpy(np.float64)
    summed = Summed(
        list(members),
        [*columns, *counted.columns],
        reduce(Moments.merged, parts),
        np.array([_percentiles(seconds[rows & ~np.isnan(seconds)]) for rows in inside]),
    )
    return figures_of(summed, explainer, groups.columns)


def figures_of(summed: Summed, explainer: str, columns: Iterable[str]) -> pd.DataFrame:
    """Return all figures of sums as `aggregates` does; `columns` are those by which rows are grouped."""
    found: list[Figure] = []
    moments, errors = summed.moments, summed.moments.error
    place = {name: at for at, name in enumerate(summed.columns)}
    there = [at for at in range(len(summed.groups)) if moments.count[at, place["rows"]]]
    for name, metric in MEANS.items():
        if name in place:
            k = place[name]
            for at in there:
                group, queries = summed.groups[at], int(moments.count[at, k])
                if queries:
                    sure = queries > 1 and (not group or queries >= LEAST_SURE)
                    error = float(errors[at, k]) if sure else None
                    found.append(Figure(explainer, group, metric, float(moments.mean[at, k]), error, queries))
    for at in there:
        found += _counts(summed, explainer, at, place)
    return figures_table([*found, *gaps(found, columns)])


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


def shares(facts: pd.DataFrame) -> pd.DataFrame:
    """Return columns (m, k) that are 1 where something holds of a row, else 0, and NaN where it says nothing.

    ``rows`` holds of all; ``status/...`` of rows; ``infeasible`` and ``fixed_share`` of those that coverage counts;
    ``proved/...`` of those with an answer.
    """
    status = facts["status"]
    asked, answered = ~status.isin(NOT_COUNTED), facts["answers"] > 0
    found = {"rows": pd.Series(1.0, index=facts.index)}
    found |= {f"status/{one}": (status == one).astype(np.float64) for one in STATUSES}
    found |= {"infeasible": (status == "infeasible").astype(np.float64).where(asked)}
    found |= {"fixed_share": fixed_rows(facts).astype(np.float64).where(asked)}
    found |= {f"proved/{one}": (facts["proof"] == one).astype(np.float64).where(answered) for one in get_args(Proof)}
    return pd.DataFrame(found)


def _counts(summed: Summed, explainer: str, at: int, place: Mapping[str, int]) -> list[Figure]:
    """Return the figures of a group that are no means of metrics: counts, shares and percentiles."""
    count, mean = summed.moments.count[at], summed.moments.mean[at]
    figures = []
    for name, k in place.items():
        if name in MEANS or not count[k]:
            continue
        counts = name == "rows" or name.startswith("status/")
        value = float(round(mean[k] * count[k])) if counts else float(mean[k])
        figures.append(Figure(explainer, summed.groups[at], name, value, None, int(count[k])))
    timed = int(count[place["seconds"]])
    for name, value in zip(("seconds_p50", "seconds_p95"), summed.seconds[at].tolist(), strict=True):
        if timed:
            figures.append(Figure(explainer, summed.groups[at], name, value, None, timed))
    return figures


def _percentiles(seconds: Floats) -> list[float]:
    return np.percentile(seconds, [50, 95]).tolist() if len(seconds) else [np.nan, np.nan]
