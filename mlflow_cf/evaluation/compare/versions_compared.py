"""Compare explained models on the same rows: versions of a registered model, explainers, or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import mlflow
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.compare import comparison_log as log
from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.compare.paired import Bootstrap
from mlflow_cf.evaluation.compare.side_by_side import MeasuredExplainer, SideBySide
from mlflow_cf.evaluation.compare.versions import LoadedVersion, Versions, open_versions
from mlflow_cf.evaluation.logged import Logbook, dataset_of
from mlflow_cf.evaluation.measure.aggregates import flat
from mlflow_cf.evaluation.measure.evaluate import Task, carry_out, task_of
from mlflow_cf.evaluation.measure.lines import ROW, GroupSource, groups_of
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.result import Evaluation
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import Table


def compare(
    name_or_uris: object,
    rows: Table,
    *,
    versions: Sequence[int | str] | None = None,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
    count: int = 1,
    seed: int | None = None,
    time_limit_s: float | None = None,
    max_evaluations: int | None = None,
    certify: bool = False,
) -> Comparison:
    """Explain the same rows with several versions and explainers, measure everything, and log it to MLflow.

    All of it is in the active run, or in a new one; each version is evaluated in a child run, as `evaluate` does. A
    version that fails is reported, and the others are compared. Whatever ends a comparison early, what was measured
    until then is logged, and the runs end as FAILED. Intervals hold 95 % of 1,000 bootstrap draws of the rows.

    Args:
        name_or_uris: the name of a registered model; or one or a list of, or name -> one of: URIs, folders, explained
            models and plain models. Plain ones are wrapped with the background and the policy of the first explained
            one.
        rows: rows to explain (m, c): a table with the columns of every version, and perhaps others for `groups`.
        versions: numbers or aliases of the registered model's versions, oldest first; None: all.
        labels, explainers, groups: as in `evaluate`.
        count, seed, max_evaluations, certify: as in `ExplainedModel.explain`.
        time_limit_s: seconds for each version and explainer; None: no clock.

    Raises:
        InputError: arguments that do not fit; no version that can be compared.
    """
    table = _numbered(rows)
    found = open_versions(name_or_uris, table, versions)
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    tasks = {
        version.name: task_of(version.explained, table, how, labels=labels, explainers=explainers, groups=groups)
        for version in found.compared
    }
    return _Sheet(found, tasks, table, groups_of(table, groups)).compared()


@dataclass(frozen=True, eq=False)
class _Sheet:
    """What a comparison works on, and what it has so far."""

    found: Versions
    tasks: Mapping[str, Task]
    rows: pd.DataFrame
    groups: pd.DataFrame
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def compared(self) -> Comparison:
        """Evaluate all versions, log and return what comes of it."""
        with log.comparing(list(self.tasks)) as run_id:
            try:
                for version in self.found.compared:
                    self.evaluate(version)
            finally:
                comparison = self.log(run_id)
            if not self.evaluations:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())
                raise InputError("versions", f"none could be evaluated ({reasons})", "mend one, or name others")
        return comparison

    def evaluate(self, version: LoadedVersion) -> None:
        """Evaluate a version in a run of its own; what was measured is logged however that ends."""
        known = version.candidate.model_id
        task = replace(self.tasks[version.name], source=Source(version.explained, known))
        try:
            with log.versioned(version) as run_id:
                evaluation = carry_out(task, Logbook(run_id, "rows", known, dataset_of(self.rows, "rows")))
        except Exception as error:  # noqa: BLE001  whatever a version does, the others go on
            self.failed[version.name] = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            return
        self.evaluations[version.name] = evaluation
        self.failed.update({f"{version.name} {name}": reason for name, reason in evaluation.failures.items()})

    def log(self, run_id: str) -> Comparison:
        """Log and return the comparison of what was measured."""
        sheets = SideBySide(tuple(self._measured()), self.rows, self.groups, Bootstrap())
        survival, notes = sheets.survival()
        survivors = {version.name: sheets.survivors(survival, version) for version in sheets.versions}
        together = {name: flat(found, by_explainer=self.tasks[name].competing) for name, found in survivors.items()}
        comparison = Comparison(
            metrics={name: {**one.metrics, **together[name]} for name, one in self.evaluations.items()},
            aggregates=_stacked({name: [one.aggregates, survivors[name]] for name, one in self.evaluations.items()}),
            table=sheets.table(),
            survival=survival,
            burden=sheets.burden(),
            advice=sheets.advice(),
            differences=sheets.differences(),
            newest=self.found.newest,
            failed={**self.found.failed, **self.failed},
            notes=(*self.found.notes, *notes, *self._notes()),
            run_id=run_id,
        )
        for version in sheets.versions:
            child = self.evaluations[version.name].run_id
            if metrics := together[version.name]:
                mlflow.log_metrics(metrics, run_id=child, model_id=version.candidate.model_id)
        log.log_comparison(comparison)
        return comparison

    def _measured(self) -> Iterator[MeasuredExplainer]:
        """Yield the lines of all evaluations, numbered as the rows."""
        for version in self.found.compared:
            evaluation = self.evaluations.get(version.name)
            if evaluation is not None:
                lines = evaluation.table
                lines.index = pd.Index(lines[ROW].astype(np.int64))
                for place, name in enumerate(self.tasks[version.name].explainers):
                    own = lines[lines["explainer"] == name].drop(columns=["explainer", ROW])
                    if len(own):
                        yield MeasuredExplainer(version, name, place, own.reindex(self.rows.index))

    def _notes(self) -> Iterator[str]:
        """Yield the notes of the evaluations, each with the versions that it is about."""
        about: dict[str, list[str]] = {}
        for name, evaluation in self.evaluations.items():
            for note in evaluation.notes:
                about.setdefault(note, []).append(name)
        yield from (f"{', '.join(names)}: {note}" for note, names in about.items())


def _stacked(figures: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Return the figures of all versions, which are named in the first column."""
    tables = [
        table.assign(version=name)[["version", *table.columns]]
        for name, own in figures.items()
        for table in own
        if len(table)
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _numbered(rows: Table) -> pd.DataFrame:
    """Return the rows as a table whose lines are numbered from 0."""
    if isinstance(rows, np.ndarray):
        rows = pd.DataFrame(rows)
    if not isinstance(rows, pd.DataFrame):
        raise InputError("rows", f"a {type(rows).__name__} is not a table", "pass a pandas DataFrame")
    return rows.reset_index(drop=True)
