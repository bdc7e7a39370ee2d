"""Compare explained models on the same rows: versions of a registered model, explainers, or both.

In MLflow that is one run with a child per version, metrics on the logged models, tables and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Final

import mlflow
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation import told
from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.compare.reported import material_of_versions
from mlflow_cf.evaluation.compare.side_by_side import Bootstrap, MeasuredExplainer, SideBySide
from mlflow_cf.evaluation.compare.streamed import summed_lines
from mlflow_cf.evaluation.compare.summed import SummedVersions
from mlflow_cf.evaluation.compare.versions import Candidate, Versions, open_versions
from mlflow_cf.evaluation.findings import heaviest, moved, survived
from mlflow_cf.evaluation.logged import Logbook, dataset_of, in_run
from mlflow_cf.evaluation.measure.aggregates import COLUMNS, flat
from mlflow_cf.evaluation.measure.evaluate import Task, carry_out, task_of
from mlflow_cf.evaluation.measure.headline import of_the_winner
from mlflow_cf.evaluation.measure.lines import ROW, GroupSource, groups_of, members_of
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.panel import Panel
from mlflow_cf.evaluation.measure.reported import failed, log_report
from mlflow_cf.evaluation.measure.result import Evaluation
from mlflow_cf.evaluation.pictures.versions import pictures
from mlflow_cf.evaluation.source import Source, SparkFrame
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import Table
from mlflow_cf.reporting.groups import column_of
from mlflow_cf.words.markdown import fenced, plain


def compare(
    name_or_uris: object,
    rows: Table | SparkFrame,
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
    until then is logged, and the runs end as FAILED. Intervals hold 95 % of 1,000 bootstrap draws of the rows; of more
    than 10,000 rows they are those of the normal distribution, and lines are read block by block.

    Args:
        name_or_uris: the name of a registered model; or one or a list of, or name -> one of: URIs, folders, explained
            models and plain models. Plain ones are wrapped with the background and the policy of the first explained
            one.
        rows: rows to explain (m, c): a table with the columns of every version, and perhaps others for `groups`; or
            such a data frame of Spark. Spark's workers measure all rows, under versions that were logged or saved;
            intervals are then those of the normal distribution, and `Comparison.table` and the report show 1,000 rows.
        versions: numbers or aliases of the registered model's versions, oldest first; None: all.
        labels, explainers, groups: as in `evaluate`.
        count, seed, max_evaluations, certify: as in `ExplainedModel.explain`.
        time_limit_s: seconds for each version and explainer; None: no clock.

    Raises:
        InputError: arguments that do not fit; no version that can be compared.
    """
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    module = SHEETS.get(type(rows).__module__.partition(".")[0])
    make: Callable[..., Sheet] = sheet_of if module is None else import_module(module).sheet_of
    return make(
        name_or_uris, rows, how, versions=versions, labels=labels, explainers=explainers, groups=groups
    ).compared()


SHEETS: Final[Mapping[str, str]] = {"pyspark": "mlflow_cf.spark.compare"}  # of tables by the package they are of


def sheet_of(
    name_or_uris: object,
    rows: object,
    measuring: Measuring,
    *,
    versions: Sequence[int | str] | None = None,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
) -> Sheet:
    """Return what `compare` works on.

    Raises:
        InputError: arguments that do not fit; no version that can be compared.
    """
    if not isinstance(rows, pd.DataFrame | np.ndarray):
        raise InputError("rows", f"a {type(rows).__name__} is not a table", "pass a pandas DataFrame")
    table = pd.DataFrame(rows).reset_index(drop=True)
    found = open_versions(name_or_uris, table, versions)
    tasks = {
        one.name: task_of(
            Source(explained, one.model_id), table, measuring, labels=labels, explainers=explainers, groups=groups
        )
        for one, explained in found.compared.items()
    }
    return Sheet(found, tasks, table, groups_of(table, groups))


@dataclass(frozen=True, eq=False)
class Sheet:
    """What a comparison works on, and what it has so far.

    Attributes:
        found: the versions; tasks: how each is evaluated.
        rows: (m, c) numbered from 0; groups: (m, ..) the group of each.
        elsewhere: measures all rows under all versions, where `rows` are a sample of them.
        evaluations: what came of the tasks, by version; failed: why nothing came of others.
    """

    found: Versions
    tasks: Mapping[str, Task]
    rows: pd.DataFrame
    groups: pd.DataFrame
    elsewhere: Callable[[], SummedVersions] | None = None
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def compared(self) -> Comparison:
        """Evaluate all versions, log and return what comes of it."""
        names, own = list(self.tasks), mlflow.active_run() is None
        with in_run(f"compare {names[0]} to {names[-1]}") as run_id:
            mlflow.set_tag("cf.compared", ", ".join(names))
            if self.elsewhere is not None:
                self.elsewhere()
            logbook = Logbook(run_id, FOLDER, None, None, own=own)
            logbook.note_params(PARAMS, {"versions": ", ".join(names)} | self.asked(names[0]))
            try:
                for candidate in self.found.compared:
                    self.evaluate(candidate)
            finally:
                comparison = self.log(logbook)
            if not self.evaluations:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())
                raise InputError("versions", f"none could be evaluated ({reasons})", "mend one, or name others")
        return comparison

    def asked(self, name: str) -> dict[str, str]:
        """Return how it was asked for, as the first version was."""
        with suppress(InputError):  # its evaluation tells of it
            return self.tasks[name].measured().asked()
        return self.tasks[name].asked()

    def evaluate(self, candidate: Candidate) -> None:
        """Evaluate a version in a run of its own; what was measured is logged however that ends."""
        name = candidate.name
        try:
            with versioned(candidate) as run_id:
                logbook = Logbook(run_id, "rows", candidate.model_id, dataset_of(self.rows, "rows"), own=True)
                evaluation = carry_out(self.tasks[name], logbook)
        except Exception as error:  # noqa: BLE001  whatever a version does, the others go on
            self.failed[name] = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            return
        if evaluation.material is not None:  # the page of a comparison shows the rows of its last version
            self.evaluations.update({old: replace(one, material=None) for old, one in self.evaluations.items()})
        self.evaluations[name] = evaluation
        self.failed.update({f"{name} {explainer}": reason for explainer, reason in evaluation.failures.items()})

    def log(self, logbook: Logbook) -> Comparison:
        """Log and return the comparison of what was measured."""
        many = len(self.rows) > BOOTSTRAPPED
        sheets = self._sheets(FIRST if many else None)
        survival, notes = sheets.survival()
        tables: SideBySide | SummedVersions = sheets
        if self.evaluations and (self.elsewhere is not None or many):
            tables = self._summed() if self.elsewhere is None else self.elsewhere()
            survival = tables.survival()
        metrics, aggregates = {}, []
        for name, one in self.evaluations.items():
            survivors = sheets.survivors(survival, name)
            task = self.tasks[name]
            added = flat(survivors, by_explainer=task.competing)
            if task.competing:
                added |= of_the_winner(added, one.winner)
            if headline := task.logged(added):
                mlflow.log_metrics(headline, run_id=one.run_id, model_id=task.source.model_id)
            metrics[name] = {**one.metrics, **added}
            aggregates += [table.assign(version=name) for table in (one.aggregates, survivors) if len(table)]
        comparison = Comparison(
            metrics=metrics,
            aggregates=pd.concat(aggregates, ignore_index=True)[["version", *COLUMNS]]
            if aggregates
            else pd.DataFrame(),
            lines=lambda: self._sheets().table(),
            survival=survival,
            burden=tables.burden(),
            advice=tables.advice(),
            differences=tables.differences(),
            newest=self.found.newest,
            failed={**self.found.failed, **self.failed},
            notes=(*self.found.notes, *notes, *self._notes()),
            run_id=logbook.run_id,
            grouped=tuple(map(str, self.groups.columns)),
        )
        log_comparison(comparison, logbook)
        return replace(comparison, report=self._report(comparison))

    def _report(self, comparison: Comparison) -> str:
        """Log the report and return its path among the artifacts; "" where none could be made."""
        try:
            material = material_of_versions(comparison, self.evaluations, [str(name) for name in self.groups.columns])
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the comparison stands
            failed(error)
            return ""
        return "" if material is None else log_report(material, FOLDER)

    def _sheets(self, first: int | None = None) -> SideBySide:
        """Return what was measured of all rows, or of so many at first, side by side."""
        explained = {name: self.tasks[name].source.explained for name in self.evaluations}
        rows, groups = self.rows.iloc[:first], self.groups.iloc[:first]
        return SideBySide(explained, self._measured(rows.index, first), rows, groups, Bootstrap())

    def _measured(self, numbers: pd.Index[int], first: int | None) -> list[MeasuredExplainer]:
        """Return the lines of all evaluations of rows with these numbers."""
        found: list[MeasuredExplainer] = []
        now: dict[int, MeasuredExplainer] = {}
        for version, evaluation in self.evaluations.items():
            before, now = now, {}
            for place, name in enumerate(self.tasks[version].explainers):
                if name not in evaluation.artifacts:
                    continue
                own = evaluation.lines(name, first)
                own.index = pd.Index(own[ROW].astype(np.int64))
                if len(own):
                    table = own.drop(columns=ROW).reindex(numbers)
                    now[place] = MeasuredExplainer(version, name, table, before.get(place))
            found += now.values()
        return found

    def _summed(self) -> SummedVersions:
        """Return the sums of the lines of all evaluations, which are many."""
        explained = {name: self.tasks[name].source.explained for name in self.evaluations}
        explainers = {
            version: {name: self.tasks[version].explainers[name] for name in self.tasks[version].explainers
                      if name in one.artifacts}
            for version, one in self.evaluations.items()
        }  # fmt: skip
        members = members_of(self.groups, len(self.groups))
        columns = list(map(str, self.groups.columns))
        named = [(column_of(group, columns), group) for group in members if group]
        groups = [(column, group.removeprefix(f"{column}.")) for column, group in named]
        panel = Panel(explained, explainers, {}, groups)
        paths = {(version, name): self.evaluations[version].file(name) for version, name in panel.keys}
        return summed_lines(panel, paths, self.rows, self.groups)

    def _notes(self) -> Iterator[str]:
        """Yield the notes of the evaluations, each with the versions that it is about."""
        about: dict[str, list[str]] = {}
        for name, evaluation in self.evaluations.items():
            for note in evaluation.notes:
                about.setdefault(note, []).append(name)
        yield from (f"{', '.join(names)}: {note}" for note, names in about.items())


BOOTSTRAPPED: Final = 10_000  # rows at most; the draws of more take minutes, and lie where the normal distribution does
FIRST: Final = 1_000  # lines that tell who can judge whom, where there are many
PARAMS: Final = "cf.compare"  # what names of params begin with
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


def log_comparison(comparison: Comparison, logbook: Logbook) -> None:
    """Log tables, pictures and what was found to the active run."""
    for name in TABLES:
        table: pd.DataFrame = getattr(comparison, name)
        if len(table):
            # MLflow selects texts as objects
            texts = {column: object for column in table.columns if table[column].dtype == "str"}
            mlflow.log_table(table.astype(texts), f"{FOLDER}/{name}.json")
    logbook.note_pictures(pictures(comparison))
    if comparison.versions:
        logbook.note_words(_note(comparison))
    mlflow.log_dict({"notes": list(comparison.notes), "left_out": dict(comparison.failed)}, f"{FOLDER}/notes.json")


def _note(comparison: Comparison) -> str:
    """Return what a comparison has found as Markdown: a headline, what is behind it, and its tables as text."""
    matrix, burden, columns = (
        comparison.survival_matrix(),
        comparison.of_the_first(comparison.burden),
        comparison.columns,
    )
    found = [survived(matrix), moved(comparison.overview(), comparison.versions)] if len(matrix) > 1 else []
    if len(burden):
        found.append(heaviest(burden, dict.fromkeys(burden["group"]), columns))
    head = [f"**{plain(found[0])}.**", "", *(f"* {plain(one)}" for one in found[1:]), ""] if found else []
    room = told.MOST_NOTED - sum(map(len, head)) - 50
    return "\n".join([*head, fenced(told.cut(repr(comparison), room))])
