"""What an evaluation found, for programs and for people."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import mlflow
import pandas as pd

from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.bake_off import RULE
from mlflow_cf.evaluation.measure.cohorts import Cohorts, cohorts
from mlflow_cf.evaluation.source import Source

SHOWN: Final = ("coverage", "validity", "constraint_satisfaction", "mixed", "n_changed", "plausibility", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The figures of one or several explainers on a table of rows.

    Attributes:
        metrics: as logged, by name.
        aggregates: all figures as a table: explainer, group, metric, value, standard_error and queries.
        ranking: the explainers by the rule of bake-offs, the winner first.
        failures: explainers that could not do it, with what they said.
        notes: what a reader should know.
        run_id: the run it is logged to.
        artifacts: explainer -> path of its lines among the run's artifacts.
        source: the model; rows: what was explained.
        version: the version that was registered with the winner, if that was asked for.
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
    version: int | None = None

    @property
    def winner(self) -> str:
        """The explainer that does best by the rule."""
        return self.ranking[0]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per row and explainer, read from the run: status, answers, every metric, the nearest answer."""
        tables = []
        for name, artifact in self.artifacts.items():
            file = Path(mlflow.artifacts.download_artifacts(run_id=self.run_id, artifact_path=artifact))
            table = pd.read_parquet(file)
            table.insert(0, "explainer", name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def to_frame(self) -> pd.DataFrame:
        """Return the figures of all rows: a line per metric and, per explainer, value, standard error and queries."""
        whole = self.aggregates[self.aggregates["group"] == ""]
        table = whole.pivot_table(
            index="metric", columns="explainer", values=["value", "standard_error", "queries"], sort=False, dropna=False
        )
        return table.swaplevel(axis=1).sort_index(axis=1, level=0, sort_remaining=False)

    def summary(self, most: int = 5) -> Cohorts:
        """Return the fewest common changes that turn the most rows, by the winner's answers; all verified.

        Args:
            most: how many changes.
        """
        own = self.table[self.table["explainer"] == self.winner]
        answers = [None if pd.isna(answer) else json.loads(answer) for answer in own["counterfactual"]]
        columns = [column for column in own.columns if column.startswith(lines.GROUP)]
        groups = own[columns].agg(", ".join, axis=1) if columns else None
        return cohorts(self.source.explained, self.rows, most=most, groups=groups, counterfactuals=answers)

    def __repr__(self) -> str:
        whole = self.aggregates[(self.aggregates["group"] == "") & self.aggregates["metric"].isin(SHOWN)]
        heads = []
        for name, one in whole.groupby("explainer", sort=False):
            values = dict(zip(one["metric"], one["value"], strict=True))
            heads.append(f"  {name}: " + ", ".join(f"{key} {values[key]:.4g}" for key in SHOWN if key in values))
        said = [f"Evaluation of {len(self.rows):,} rows; winner {self.winner}", *heads]
        return "\n".join([*said, *(f"  {name} failed: {why}" for name, why in self.failures.items()), *self.notes])

    def _repr_html_(self) -> str:
        """Return the figures as a table for notebooks, with those who failed."""
        failed = [
            f"<li><b>{html.escape(name)}</b> failed: {html.escape(why)}</li>" for name, why in self.failures.items()
        ]
        said = [*failed, *(f"<li>{html.escape(note)}</li>" for note in self.notes)]
        head = f"<p>{len(self.rows):,} rows; winner <b>{html.escape(self.winner)}</b> ({html.escape(RULE)})</p>"
        return (
            head + (f"<ul>{''.join(said)}</ul>" if said else "") + self.to_frame().to_html(float_format="{:.4g}".format)
        )
