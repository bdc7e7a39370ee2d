"""What an evaluation found, for programs and for people.

Also of several explainers on the same rows, and the one that does best by a stated rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mlflow_cf import cards
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.aggregates import fixed_rows
from mlflow_cf.evaluation.measure.cohorts import Cohorts, SummaryOptions, of_lines
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of
from mlflow_cf.features import Floats
from mlflow_cf.reporting.data import Material

AT_ONCE: Final = 4_096  # lines that are read together
SHOWN: Final = ("coverage", "validity", "constraint_satisfaction", "mixed", "n_changed", "plausibility", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The figures of one or several explainers on a table of rows.

    Attributes:
        metrics: all of them, by name: ``cf/coverage``, ``cf/coverage/sex.F``, ``cf/geco/coverage`` of one explainer of
            several; without its name, headline ones are the winner's.
        aggregates: all figures as a table: explainer, group, metric, value, standard_error and queries.
        ranking: the explainers by the rule of bake-offs, the winner first.
        failures: explainers that could not do it, with what they said.
        notes: what a reader should know.
        run_id: the run it is logged to.
        artifacts: explainer -> path of its lines among the run's artifacts.
        source: the model; rows: what was explained, or a sample of it.
        total: how many rows were explained.
        version: the version that was registered with the winner, if that was asked for.
        logged: the headline metrics and those asked for beside them: what run and LoggedModel have of `metrics`.
        report: path of the HTML report among the run's artifacts; "": none could be made.
        material: what the report is made of.
    """

    metrics: Mapping[str, float]
    aggregates: pd.DataFrame
    ranking: tuple[str, ...]
    failures: Mapping[str, str]
    notes: tuple[str, ...]
    run_id: str
    artifacts: Mapping[str, str]
    source: Source
    rows: pd.DataFrame
    total: int
    version: int | None = None
    logged: Mapping[str, float] = field(default_factory=dict)
    report: str = ""
    material: Material | None = field(default=None, repr=False)

    @property
    def winner(self) -> str:
        """The explainer that does best by the rule."""
        return self.ranking[0]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per row and explainer, read from the run: status, answers, every metric, the nearest answer."""
        tables = []
        for name in self.artifacts:
            table = self.lines(name)
            table.insert(0, "explainer", name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def file(self, explainer: str) -> Path:
        """Return the file with the lines of an explainer, fetched from the run if it is elsewhere."""
        path = self.artifacts[explainer]
        return Path(mlflow.artifacts.download_artifacts(run_id=self.run_id, artifact_path=path))

    def lines(self, explainer: str, first: int | None = None) -> pd.DataFrame:
        """Return the lines of an explainer, or so many at first."""
        if first is None:
            return pd.read_parquet(self.file(explainer))
        return lines.first(self.file(explainer), first)

    def to_frame(self) -> pd.DataFrame:
        """Return the figures of all rows: a line per metric and, per explainer, value, standard error and queries."""
        whole = self.aggregates[self.aggregates["group"] == ""]
        table = whole.pivot_table(
            index="metric", columns="explainer", values=["value", "standard_error", "queries"], sort=False, dropna=False
        )
        return table.swaplevel(axis=1).sort_index(axis=1, level=0, sort_remaining=False)

    def fixed(self) -> pd.DataFrame:
        """Return the rows (m, d) that no lawful action turns, as the winner's search has proved: who they are."""
        own = self.table[self.table["explainer"] == self.winner]
        return self.rows[fixed_rows(own).to_numpy()]

    def summary(self, most: int = 5, options: SummaryOptions | Mapping[str, Any] | None = None) -> Cohorts:
        """Return the fewest common changes that turn the most rows, all verified; see `cohorts`.

        Args:
            most: how many changes.
            options: which changes are compared, and how long; a model that is not opened is asked about changes that
                the winner's answers have in common.
        """
        own = self.table[self.table["explainer"] == self.winner]
        return of_lines(self.source.explained, self.rows, own, most, options)

    def __repr__(self) -> str:
        whole = self.aggregates[(self.aggregates["group"] == "") & self.aggregates["metric"].isin(SHOWN)]
        heads = []
        for name, one in whole.groupby("explainer", sort=False):
            values = dict(zip(one["metric"], one["value"], strict=True))
            heads.append(f"  {name}: " + ", ".join(f"{key} {values[key]:.4g}" for key in SHOWN if key in values))
        said = [f"Evaluation of {self.total:,} rows; winner {self.winner}", *heads]
        return "\n".join([*said, *(f"  {name} failed: {why}" for name, why in self.failures.items()), *self.notes])

    def _repr_html_(self) -> str:
        """Return the figures as a table for notebooks, with those who failed."""
        head = f"{self.total:,} rows; winner {self.winner} ({RULE})"
        said = [*(f"{name} failed: {why}" for name, why in self.failures.items()), *self.notes]
        return cards.page(cards.told(head), cards.items(said), cards.table(self.to_frame(), index=True))


RULE: Final = (
    "all answers valid and lawful first, then higher coverage, then lower mean distance on the rows that all answered, "
    "then the lower median of seconds"
)


def contestants(explainers: Sequence[ExplainerSource]) -> dict[str, ExplainerSource]:
    """Return explainers by a name of its own for each, numbered where several have the same.

    Raises:
        InputError: there are none, or one is named that does not exist.
    """
    if isinstance(explainers, str) or not len(explainers):
        raise InputError("explainers", f"{explainers!r} is not a list of explainers", "such as ['geco', 'exact']")
    names = [explainer_of(source, f"explainers[{place}]").name for place, source in enumerate(explainers)]
    seen: Counter[str] = Counter()
    found = {}
    for name, source in zip(names, explainers, strict=True):
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}_{seen[name]}"] = source
    return found


def ranking(paths: dict[str, Path]) -> tuple[str, ...]:
    """Return the names of explainers by the `RULE`, best first, from their lines by name."""
    shared: Bools | None = None
    for path in paths.values():  # column by column: of many rows, all of them would take more than all else
        answered = ~np.isnan(lines.column(path, "mixed"))
        if answered.any():
            shared = answered if shared is None else shared & answered
    nobody = np.zeros(0, dtype=np.bool_)
    return ranked({name: _standing(path, nobody if shared is None else shared) for name, path in paths.items()})


@dataclass(frozen=True)
class Standing:
    """How an explainer did, as far as the `RULE` asks; NaN is unknown.

    Attributes:
        lawful: whether all answers are valid and meet all constraints.
        coverage: mean; distance: mean over the rows that all explainers answered; seconds: median.
    """

    lawful: bool
    coverage: float
    distance: float
    seconds: float

    @property
    def order(self) -> tuple[bool, float, float, float]:
        """What is compared from left to right; less is better."""
        uncovered = 0.0 if np.isnan(self.coverage) else 1.0 - self.coverage
        distance = np.inf if np.isnan(self.distance) else self.distance
        return not self.lawful, uncovered, distance, 0.0 if np.isnan(self.seconds) else self.seconds


def ranked(standings: Mapping[str, Standing]) -> tuple[str, ...]:
    """Return the names of explainers by the `RULE`, best first."""
    return tuple(sorted(standings, key=lambda name: standings[name].order))


def unanswered(paths: Mapping[str, Path]) -> Iterator[str]:
    """Yield why an explainer answered none of the rows that it was asked about: what most of them were told."""
    for name, path in paths.items():
        told: Counter[tuple[str, str]] = Counter()
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(AT_ONCE, columns=["status", "reason"]):
                told.update(zip(*(batch[column].to_pylist() for column in ("status", "reason")), strict=True))
                if any(status == "found" for status, _ in told):
                    break
        asked = Counter({one: count for one, count in told.items() if one[0] not in ("already", "skipped")})
        if not asked or any(status == "found" for status, _ in asked):
            continue
        (status, reason), count = asked.most_common(1)[0]
        total = asked.total()
        yield f"{name} answers no row; {count:,} of {total:,} are {status}: {reason or 'no reason is told'}"


def _standing(path: Path, shared: Bools) -> Standing:
    checked = [lines.column(path, name) for name in ("validity", "constraint_satisfaction")]
    known = ~np.isnan(checked).any(axis=0)
    lawful = all(bool((one[known] == 1).all()) for one in checked)
    mixed, seconds = lines.column(path, "mixed"), np.nan_to_num(lines.column(path, "seconds"), nan=0.0)
    distance = _mean(mixed[shared]) if shared.any() else np.nan
    return Standing(lawful, _mean(lines.column(path, "coverage")), distance, float(np.median(seconds)))


def _mean(values: Floats) -> float:
    """Return the mean of the known ones of values (m,); NaN of none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
