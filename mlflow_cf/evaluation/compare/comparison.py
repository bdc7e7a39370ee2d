"""What a comparison of versions has measured, and the gate of thresholds that a version may have to pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import mlflow
import pandas as pd
from mlflow.models import EvaluationResult, MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

from mlflow_cf import cards
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.compare.side_by_side import ALL
from mlflow_cf.reporting.groups import GROUP

OVERVIEW: Final = (
    "accuracy",
    "coverage",
    "mixed",
    "n_changed",
    "plausibility",
    "survival",
    "probability_lost",
    "seconds_p50",
)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Versions and explainers side by side, on the same rows.

    Attributes:
        metrics: version -> its metrics: those of its evaluation, and ``cf/survival``, the share of the counterfactuals
            of the version before that this one predicts as wanted, with ``cf/probability_lost``; and ``cf/promised``,
            the share that was to be expected, where models were retrained for that.
        aggregates: all of them as a table: version, explainer, group ("" for all rows), metric and value.
        lines: the `table`, or what reads it from the run when it is asked for.
        survival: one line per issuing version, explainer, judging version and group.
        burden: one line per version, explainer, group and measure, with the change since the version before.
        advice: one line per version, explainer and feature: the share of answers that change it.
        differences: one line per pair of neighbours and metric: paired differences with intervals. Neighbours are a
            version and the one before it, and an explainer and the first one.
        newest: the version to be gated: the last one that was asked for.
        failed: name -> why a version, or an explainer of it, was left out.
        notes: what else is worth knowing.
        run_id: the MLflow run that has it all; it has a child per version.
        report: path of the HTML report among the run's artifacts; "": none could be made.
        grouped: the columns by which rows are grouped; None: those of the table.
    """

    metrics: Mapping[str, Mapping[str, float]]
    aggregates: pd.DataFrame
    lines: pd.DataFrame | Callable[[], pd.DataFrame]
    survival: pd.DataFrame
    burden: pd.DataFrame
    advice: pd.DataFrame
    differences: pd.DataFrame
    newest: str
    failed: Mapping[str, str]
    notes: tuple[str, ...]
    run_id: str
    report: str = ""
    grouped: tuple[str, ...] | None = None

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per version, explainer and row, with every metric of that row; of Spark, per row of the sample."""
        return self.lines() if callable(self.lines) else self.lines

    @property
    def versions(self) -> tuple[str, ...]:
        """Names of the compared versions, oldest first."""
        return tuple(self.metrics)

    def to_frame(self) -> pd.DataFrame:
        """Return the metrics of all rows side by side: one line per version and explainer."""
        whole = self.aggregates[self.aggregates["group"] == ALL]
        return whole.pivot_table(index=["version", "explainer"], columns="metric", values="value", sort=False)

    def survival_matrix(self, group: str = ALL, explainer: str | None = None) -> pd.DataFrame:
        """Return the share of each version's counterfactuals (lines) that each version (columns) predicts as wanted.

        Args:
            group: such as ``"sex.F"``; "" for all rows.
            explainer: whose counterfactuals; None: those of each version's first one.
        """
        lines = self.survival[self.survival["group"] == group] if len(self.survival) else self.survival
        if explainer is not None:
            lines = lines[lines["explainer"] == explainer]
        shares = {(line["issued"], line["judged"]): line["survival"] for line in lines[::-1].to_dict("records")}
        known = list(self.versions)
        values = [[shares.get((issued, judge), float("nan")) for judge in known] for issued in known]
        return pd.DataFrame(values, index=pd.Index(known, name="issued"), columns=pd.Index(known, name="judged"))

    def validate(self, thresholds: Mapping[str, MetricThreshold], *, version: str | None = None) -> None:
        """Hold a version against thresholds, as `mlflow.validate_evaluation_results` does.

        Args:
            thresholds: metric -> MLflow's threshold; changes are those since the version before.
            version: its name; None: the newest one.

        Raises:
            ModelValidationFailedException: MLflow's own, with every metric that falls short.
            InputError: a version that was not compared.
        """
        name = version or self.newest
        if name not in self.metrics:
            fact = f"was not compared: {self.failed[name]}" if name in self.failed else "was not compared"
            raise InputError(f"versions.{name}", fact, did_you_mean(name, self.versions, "compared"))
        at = self.versions.index(name)
        before = self.metrics[self.versions[at - 1]] if at else {}
        messages = [_shortfall(key, one, self.metrics[name], before) for key, one in thresholds.items()]
        if any(messages):
            raise ModelValidationFailedException("\n".join(f"{name}: {message}" for message in messages if message))

    @property
    def columns(self) -> list[str]:
        """The columns by which rows are grouped."""
        if self.grouped is not None:
            return list(self.grouped)
        return [str(name).removeprefix(GROUP) for name in self.table.columns if str(name).startswith(GROUP)]

    def of_the_first(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the lines of the first explainer of each version, of a `table` such as `survival` or `burden`."""
        if not len(table):
            return table
        first = table.drop_duplicates("version").set_index("version")["explainer"]
        return table[table["explainer"] == table["version"].map(first)]

    def overview(self) -> pd.DataFrame:
        """Return the few metrics that are read first."""
        frame = self.to_frame()
        return frame[[name for name in OVERVIEW if name in frame.columns]]

    def __repr__(self) -> str:
        head = f"Comparison of {', '.join(self.versions)}"
        tables = [self.overview(), self.survival_matrix()] if self.metrics else []
        told = [table for table in tables if table.notna().any(axis=None)]
        lines = [head, *(table.to_string(float_format="{:.4g}".format, na_rep="") for table in told)]
        lines += [f"left out: {name}: {reason}" for name, reason in self.failed.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return what is read first as tables for notebooks."""
        burden = self.burden.set_index(["version", "explainer", "group", "measure"])
        tables = {
            "Versions and explainers": self.overview(),
            "Survival of the counterfactuals of the line's version under the column's": self.survival_matrix(),
            "Burden": burden,
        }
        said = [*(f"{name} is left out: {reason}" for name, reason in self.failed.items()), *self.notes]
        shown = [
            part
            for title, one in tables.items()
            if one.notna().any(axis=None)
            for part in (cards.told(title), cards.table(one, index=True))
        ]
        return cards.page(cards.items(said), *shown)


def _shortfall(
    name: str, threshold: MetricThreshold, candidate: Mapping[str, float], before: Mapping[str, float]
) -> str:
    """Return why a metric falls short, in MLflow's words, or ""."""
    baseline = EvaluationResult({name: before[name]}, {}) if name in before else None
    try:
        mlflow.validate_evaluation_results({name: threshold}, EvaluationResult(dict(candidate), {}), baseline)
    except ModelValidationFailedException as error:
        return str(error.message)
    return ""


_WRITTEN: Final = re.compile(
    r"\s*(?P<metric>.+?)\s*(?P<sign>>=|<=)\s*(?P<value>[-+]?[\d.]+(?:e[-+]?\d+)?)\s*", re.IGNORECASE
)


def read_thresholds(written: Iterable[str]) -> dict[str, MetricThreshold]:
    """Return MLflow's thresholds for texts such as ``"cf/coverage>=0.9"`` and ``"cf/n_changed<=2"``.

    Raises:
        InputError: another form, or two thresholds of one metric.
    """
    found: dict[str, MetricThreshold] = {}
    for text in written:
        match = _WRITTEN.fullmatch(text)
        try:
            value = float(match["value"]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            raise InputError("threshold", f"{text!r} is no metric, >= or <=, and number", "such as 'cf/coverage>=0.9'")
        if match["metric"] in found:
            raise InputError("threshold", f"{match['metric']!r} has two", "name one")
        found[match["metric"]] = MetricThreshold(threshold=value, greater_is_better=match["sign"] == ">=")
    return found
