"""Compare explained models on the same rows: versions of a registered model, explainers, or both.

In MLflow that is one run with a child per version, metrics on the logged models, tables and figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import mlflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.compare.reported import material_of_versions
from mlflow_cf.evaluation.compare.side_by_side import Bootstrap, MeasuredExplainer, SideBySide
from mlflow_cf.evaluation.compare.versions import Candidate, Versions, open_versions
from mlflow_cf.evaluation.logged import Logbook, bars, dataset_of, in_run
from mlflow_cf.evaluation.measure.aggregates import COLUMNS, flat
from mlflow_cf.evaluation.measure.evaluate import Task, carry_out, task_of
from mlflow_cf.evaluation.measure.lines import ROW, GroupSource, groups_of
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.reported import failed, log_report
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
    if not isinstance(rows, pd.DataFrame | np.ndarray):
        raise InputError("rows", f"a {type(rows).__name__} is not a table", "pass a pandas DataFrame")
    table = pd.DataFrame(rows).reset_index(drop=True)
    found = open_versions(name_or_uris, table, versions)
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    tasks = {
        one.name: task_of(
            Source(explained, one.model_id), table, how, labels=labels, explainers=explainers, groups=groups
        )
        for one, explained in found.compared.items()
    }
    return _Sheet(found, tasks, table, groups_of(table, groups)).compared()


@dataclass(frozen=True, eq=False)
class _Sheet:
    """What a comparison works on, and what it has so far: the tasks and what came of them by version."""

    found: Versions
    tasks: Mapping[str, Task]
    rows: pd.DataFrame
    groups: pd.DataFrame
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def compared(self) -> Comparison:
        """Evaluate all versions, log and return what comes of it."""
        names = list(self.tasks)
        with in_run(f"compare {names[0]} to {names[-1]}") as run_id:
            mlflow.set_tag("cf.compared", ", ".join(names))
            try:
                for candidate in self.found.compared:
                    self.evaluate(candidate)
            finally:
                comparison = self.log(run_id)
            if not self.evaluations:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())
                raise InputError("versions", f"none could be evaluated ({reasons})", "mend one, or name others")
        return comparison

    def evaluate(self, candidate: Candidate) -> None:
        """Evaluate a version in a run of its own; what was measured is logged however that ends."""
        name = candidate.name
        try:
            with versioned(candidate) as run_id:
                logbook = Logbook(run_id, "rows", candidate.model_id, dataset_of(self.rows, "rows"))
                evaluation = carry_out(self.tasks[name], logbook)
        except Exception as error:  # noqa: BLE001  whatever a version does, the others go on
            self.failed[name] = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            return
        self.evaluations[name] = evaluation
        self.failed.update({f"{name} {explainer}": reason for explainer, reason in evaluation.failures.items()})

    def log(self, run_id: str) -> Comparison:
        """Log and return the comparison of what was measured."""
        explained = {name: self.tasks[name].source.explained for name in self.evaluations}
        sheets = SideBySide(explained, self._measured(), self.rows, self.groups, Bootstrap())
        survival, notes = sheets.survival()
        metrics, aggregates = {}, []
        for name, one in self.evaluations.items():
            survivors = sheets.survivors(survival, name)
            added = flat(survivors, by_explainer=self.tasks[name].competing)
            if added:
                mlflow.log_metrics(added, run_id=one.run_id, model_id=self.tasks[name].source.model_id)
            metrics[name] = {**one.metrics, **added}
            aggregates += [table.assign(version=name) for table in (one.aggregates, survivors) if len(table)]
        comparison = Comparison(
            metrics=metrics,
            aggregates=pd.concat(aggregates, ignore_index=True)[["version", *COLUMNS]]
            if aggregates
            else pd.DataFrame(),
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
        log_comparison(comparison)
        return replace(comparison, report=self._report(comparison))

    def _report(self, comparison: Comparison) -> str:
        """Log the report and return its path among the artifacts; "" where none could be made."""
        try:
            material = material_of_versions(comparison, self.evaluations, [str(name) for name in self.groups.columns])
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the comparison stands
            failed(error)
            return ""
        return "" if material is None else log_report(material, FOLDER)

    def _measured(self) -> list[MeasuredExplainer]:
        """Return the lines of all evaluations, numbered as the rows."""
        found: list[MeasuredExplainer] = []
        now: dict[int, MeasuredExplainer] = {}
        for version, evaluation in self.evaluations.items():
            lines = evaluation.table
            lines.index = pd.Index(lines[ROW].astype(np.int64))
            before, now = now, {}
            for place, name in enumerate(self.tasks[version].explainers):
                own = lines[lines["explainer"] == name].drop(columns=["explainer", ROW])
                if len(own):
                    now[place] = MeasuredExplainer(version, name, own.reindex(self.rows.index), before.get(place))
            found += now.values()
        return found

    def _notes(self) -> Iterator[str]:
        """Yield the notes of the evaluations, each with the versions that it is about."""
        about: dict[str, list[str]] = {}
        for name, evaluation in self.evaluations.items():
            for note in evaluation.notes:
                about.setdefault(note, []).append(name)
        yield from (f"{', '.join(names)}: {note}" for note, names in about.items())


MOST_WORDS: Final = 4_000  # characters of a description
FOLDER: Final = "compare"  # of tables and figures among the artifacts of the run
TABLES: Final = ("aggregates", "survival", "burden", "advice", "differences")


@contextmanager
def versioned(candidate: Candidate) -> Iterator[str]:
    """Work in a child run, tagged with the logged model and the registered version; the value is its id."""
    registered = candidate.registered
    tags = {
        "cf.version": candidate.name,
        "cf.uri": candidate.source if isinstance(candidate.source, str) else None,
        "cf.model_id": candidate.model_id,
        "cf.registered_model": registered and registered.name,
        "cf.registered_version": registered and str(registered.version),
    }
    with mlflow.start_run(run_name=candidate.name, nested=True, tags={k: v for k, v in tags.items() if v}) as run:
        yield run.info.run_id


def log_comparison(comparison: Comparison) -> None:
    """Log tables and figures to the active run."""
    for name in TABLES:
        table: pd.DataFrame = getattr(comparison, name)
        if len(table):
            # MLflow selects texts as objects
            texts = {column: object for column in table.columns if table[column].dtype == "str"}
            mlflow.log_table(table.astype(texts), f"{FOLDER}/{name}.json")
    for name, figure in figures_of(comparison).items():
        mlflow.log_figure(figure, f"{FOLDER}/{name}.png")
    # what the run's page shows first
    mlflow.set_tag("mlflow.note.content", f"```\n{comparison!r}"[:MOST_WORDS] + "\n```")
    mlflow.log_dict({"notes": list(comparison.notes), "left_out": dict(comparison.failed)}, f"{FOLDER}/notes.json")


MOST_FEATURES: Final = 12  # shown
WIDTH: Final = 7.0  # inches


def figures_of(comparison: Comparison) -> Mapping[str, Figure]:
    """Return the figures by name; those that would be empty are left out."""
    figures = {}
    if len(comparison.survival):
        figures["survival"] = survival_figure(comparison.survival_matrix())
    if len(comparison.burden):
        figures["burden"] = burden_figure(_of_the_first(comparison.burden))
    if len(comparison.advice) and comparison.advice["share"].notna().any():
        figures["advice"] = advice_figure(_of_the_first(comparison.advice))
    return figures


def survival_figure(matrix: pd.DataFrame) -> Figure:
    """Return a survival matrix (versions, versions) as a map with its shares written in."""
    size = max(4.0, 1.2 + 0.9 * len(matrix))
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(matrix.to_numpy(np.float64), vmin=0, vmax=1, cmap="RdYlGn")
    axes.set_xticks(range(len(matrix)), matrix.columns, rotation=30, ha="right")
    axes.set_yticks(range(len(matrix)), matrix.index)
    axes.set(xlabel="judged by", ylabel="issued under", title="Share of counterfactuals that survive")
    for row, line in enumerate(matrix.to_numpy(np.float64)):
        for column, share in enumerate(line):
            axes.text(column, row, "" if np.isnan(share) else f"{share:.0%}", ha="center", va="center")
    figure.colorbar(shown, shrink=0.8)
    return figure


def burden_figure(burden: pd.DataFrame) -> Figure:
    """Return one panel per measure: its mean in every group, with intervals, a colour per version."""
    measures, groups = list(dict.fromkeys(burden["measure"])), list(dict.fromkeys(burden["group"]))
    figure = Figure(figsize=(WIDTH, len(measures) * (1.0 + 0.35 * len(groups))), layout="constrained")
    panels = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    for axes, measure in zip(panels, measures, strict=True):
        lines = burden[burden["measure"] == measure]
        for place, (version, found) in enumerate(lines.groupby("version", sort=False)):
            own = found.set_index("group").reindex(groups)
            mean, low, high = (own[name].to_numpy(np.float64) for name in ("mean", "low", "high"))
            reach = np.nan_to_num(np.maximum([mean - low, high - mean], 0.0))
            heights = np.arange(len(groups)) + 0.12 * place
            axes.errorbar(mean, heights, xerr=reach, fmt="o", markersize=4, capsize=2, label=str(version))
        axes.set_yticks(range(len(groups)), [group or "all rows" for group in groups])
        axes.invert_yaxis()
        axes.set_title(measure.replace("_", " "))
    panels[0].legend(loc="best", fontsize="small")
    return figure


def advice_figure(advice: pd.DataFrame) -> Figure:
    """Return the share of answers that change each feature, a bar per version."""
    most = advice.groupby("feature")["share"].max().sort_values(ascending=False).dropna()
    names = [str(name) for name in most[most > 0].index[:MOST_FEATURES]]
    shares = advice.pivot_table("share", "feature", "version", sort=False, dropna=False).reindex(names)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.2 * len(shares.columns) * max(len(names), 1)), layout="constrained")
    axes = figure.add_subplot()
    bars(axes, shares)
    axes.set(title="Share of the nearest answers that change a feature", xlim=(0, 1))
    axes.legend(fontsize="small")
    return figure


def _of_the_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the first explainer of each version."""
    first = table.drop_duplicates("version").set_index("version")["explainer"]
    return table[table["explainer"] == table["version"].map(first)]
