"""`evaluate`: a table explained, measured, and logged to MLflow; several explainers compete on the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.artifact.publish.hand_over import check_registrable
from mlflow_cf.artifact.publish.log import log_with_explainer
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation import told
from mlflow_cf.evaluation.findings import Findings
from mlflow_cf.evaluation.logged import Logbook, dataset_of, in_run
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.aggregates import LEAST_SURE, Figure, aggregates, figures_table, flat
from mlflow_cf.evaluation.measure.headline import logged, of_the_winner, unmatched
from mlflow_cf.evaluation.measure.lines import GroupSource
from mlflow_cf.evaluation.measure.measured import Measuring, inliers_of, measure_rows
from mlflow_cf.evaluation.measure.panel import Whole
from mlflow_cf.evaluation.measure.reported import Outcome, failed, log_report, material_of
from mlflow_cf.evaluation.measure.result import Evaluation, contestants, ranking, unanswered
from mlflow_cf.evaluation.measure.risks import risk_figures
from mlflow_cf.evaluation.measure.shown import Shown
from mlflow_cf.evaluation.pictures.evaluated import pictures
from mlflow_cf.evaluation.source import ModelSource, Source, SparkFrame, source_of
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import as_rows
from mlflow_cf.reporting.data import Material
from mlflow_cf.reporting.groups import GROUP
from mlflow_cf.words.sentences import Speaker


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be evaluated.

    Attributes:
        source: the model.
        rows: what is explained (m, d), with whatever columns stand beside the features.
        beside: what is known of them.
        explainers: who explains them, by name.
        measuring: how.
        competing: whether figures are logged by explainer.
        risk: whether what answers give away is measured too.
        metrics: patterns of the names of metrics that are logged beside the headline ones.
        elsewhere: measures all rows, where `rows` are a sample of them; whole: what it has found.
    """

    source: Source
    rows: pd.DataFrame
    beside: lines.Beside
    explainers: Mapping[str, ExplainerSource]
    measuring: Measuring
    competing: bool
    risk: bool = False
    metrics: tuple[str, ...] = ()
    elsewhere: Callable[[], Whole] | None = None
    whole: Whole | None = None

    @property
    def total(self) -> int:
        """How many rows are measured."""
        return len(self.rows) if self.whole is None else self.whole.rows

    def logged(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return which of all metrics are logged."""
        return logged(metrics, self.explainers if self.competing else (), self.metrics)

    @property
    def columns(self) -> list[str]:
        """The columns by which rows are grouped."""
        names = map(str, self.beside.facts.columns)
        return [name.removeprefix(GROUP) for name in names if name.startswith(GROUP)]

    def measured(self) -> Task:
        """Return the task with what was measured of all rows, where those at hand are a sample of them.

        Raises:
            InputError: no explainer could do it.
        """
        if self.elsewhere is None:
            return self
        whole = self.elsewhere()
        alive = {name: one for name, one in self.explainers.items() if name not in whole.failures}
        return replace(self, explainers=alive, whole=whole)

    def asked(self) -> dict[str, str]:
        """Return how it was asked for."""
        return told.asked(self.total, self.columns, self.explainers, self.measuring, self.source.explained)


@dataclass(eq=False)
class SoFar:
    """What is there so far, so that nothing is lost however it ends.

    Attributes:
        paths: the lines of each explainer; risks: what its answers give away.
        failures: who could not do it, and why.
        interruption: what stopped the work, if anything has.
        shown: explanations by each explainer that a report may show.
    """

    paths: dict[str, Path] = field(default_factory=dict)
    risks: list[Figure] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    interruption: BaseException | None = None
    shown: dict[str, Shown] = field(default_factory=dict)


def evaluate(
    model: ModelSource,
    rows: pd.DataFrame | SparkFrame,
    *,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    count: int = 1,
    groups: GroupSource | None = None,
    seed: int | None = None,
    time_limit_s: float | None = None,
    max_evaluations: int | None = None,
    certify: bool = False,
    risk: bool = False,
    metrics: Sequence[str] = (),
    name: str = "counterfactual",
    register_winner: str | None = None,
) -> Evaluation:
    """Explain a table, measure the answers, and log everything to the active run, or else to a new one.

    A dozen headline metrics ``cf/...`` are logged to the run and to the model's LoggedModel, with `rows` as their data
    set; all metrics as tables; one line per row as parquet; the first 1,000 as a table for MLflow's pages; pictures;
    and ``report.html``, a page to read. The lines and the page hold the answers, and with them what rows had: whoever
    may read the run can read them. A line
    depends on its row alone, whatever stands beside.

    Args:
        model: an explained model in memory, a loaded pyfunc of one, or its URI or folder.
        rows: rows to explain (m, d), with any other columns beside the model's: a pandas table, or a data frame of
            Spark. Spark's workers measure all rows, and need a model that was logged or saved; lines, the distances in
            pictures, the report and risks are then those of 1,000 rows that the seed draws.
        labels: (m,) true targets, or the column of `rows` with them: the share of right predictions, or their mean
            absolute error, is logged beside.
        explainers: several explainers, by name or as objects, on the same rows; None: the model's own. The winner's
            answers are all valid and lawful; then coverage decides, then mean distance on the rows that all answered,
            then seconds. Who fails is named with the reason.
        count: counterfactuals per row.
        groups: a column of `rows`, several, or column -> edges of bins: figures of each group beside those of all.
            Many numbers or dates without edges make bins at their quartiles.
        seed, max_evaluations, certify: as in `ExplainedModel.explain`.
        time_limit_s: seconds for all rows of an explainer, of all workers together; None: no clock.
        risk: also measure what answers give away, as ``cf/risk/...`` (see `risk_figures`), on rows that
            the model was not trained on; up to 1,000 of its background are explained beside them.
        metrics: further metrics to log, by their names or by patterns of these: ``["cf/gower", "cf/coverage/sex.*"]``.
        name: folder of the run's artifacts.
        register_winner: registers a new version under this name: the model as it is, with the winner as its explainer.

    Raises:
        InputError: arguments that do not fit, or no explainer that can do it.
        KeyboardInterrupt: by Ctrl-C; what was measured by then is logged, and a run of our own has failed.
    """
    if register_winner is not None:
        check_registrable(register_winner, "register_winner")
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    task = tasks_of(rows)(source_of(model), rows, how, labels=labels, explainers=explainers, groups=groups, risk=risk,
                          metrics=metrics)  # fmt: skip
    folder = task.source.folder
    if register_winner is not None and folder is None:
        fix = "pass the URI or folder of a logged one"
        raise InputError("register_winner", "the files of this model are not known", fix)
    own = mlflow.active_run() is None
    with in_run() as run_id:
        data = dataset_of(task.rows, name if task.elsewhere is None else f"{name}_sample")
        found = carry_out(task, Logbook(run_id, name, task.source.model_id, data, own=own))
        if register_winner is None or folder is None:
            return found
        info = log_with_explainer(folder, task.explainers[found.winner], "explained", register_winner)
        version = info.registered_model_version
        return replace(found, version=None if version is None else int(version))


TASKS: Final[Mapping[str, str]] = {"pyspark": "mlflow_cf.spark.evaluate"}  # of tables by the package they are of


def tasks_of(rows: object) -> Callable[..., Task]:
    """Return what makes tasks of a table: `task_of`, or that of the module for the package that the table is of."""
    module = TASKS.get(type(rows).__module__.partition(".")[0])
    if module is None:
        return task_of
    made: Callable[..., Task] = import_module(module).task_of
    return made


def task_of(
    source: Source,
    rows: pd.DataFrame,
    measuring: Measuring,
    *,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
    risk: bool = False,
    metrics: Sequence[str] = (),
) -> Task:
    """Return what `evaluate` is asked for, checked before any run is opened.

    Raises:
        InputError: arguments that do not fit.
    """
    table = as_rows(rows, source.explained.space.columns)
    source.explained.space.select(table)
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    beside = lines.Beside.of(table, _labels(table, labels), lines.groupers_of(table, groups), source.explained)
    if isinstance(metrics, str):
        raise InputError("metrics", f"{metrics!r} is not a list of names", f"pass [{metrics!r}]")
    chosen = contestants([source.explained.explainer] if explainers is None else explainers)
    measuring = replace(measuring, lof=inliers_of(source.explained))  # learned once for all explainers
    return Task(source, table, beside, chosen, measuring, explainers is not None, risk, tuple(metrics))


def carry_out(task: Task, logbook: Logbook) -> Evaluation:
    """Do a task in the active run, and log what comes of it, whole or not."""
    so_far = SoFar()
    with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch:
        logbook.note_input()
        task = task.measured()
        logbook.note_params(told.EVALUATE, task.asked())
        measure_all(task, Path(scratch), so_far)
        found = _logged(task, so_far, logbook) if so_far.paths else None
    if isinstance(so_far.interruption, KeyboardInterrupt):
        raise KeyboardInterrupt(_told(found, task)) from None
    if so_far.interruption is not None:
        raise so_far.interruption
    if found is None:
        raise nobody(so_far)
    return found


def measure_all(task: Task, scratch: Path, so_far: SoFar) -> None:
    """Let every explainer explain the rows, with its lines in the folder `scratch`, until something stops the work."""
    for name in task.explainers:
        _measure(task, name, scratch, so_far)
        if so_far.interruption is not None:
            break


def nobody(so_far: SoFar) -> InputError:
    """Return what is raised where no explainer could do it."""
    said = "; ".join(f"{name}: {why}" for name, why in so_far.failures.items())
    return InputError("explainers", f"none could do it ({said})", "choose others")


def _measure(task: Task, name: str, scratch: Path, so_far: SoFar) -> None:
    """Write the lines of one explainer; note how it failed if it did."""
    path = scratch / f"{name}.parquet"
    explained, rows = task.source.explained, task.rows.reset_index(drop=True)
    measuring = replace(task.measuring, explainer=task.explainers[name])
    shown = Shown(len(rows), explained.policy.seed if measuring.seed is None else measuring.seed)
    try:
        kept = replace(measuring, keep=shown.keep)
        lines.write(path, measure_rows(explained, rows, kept), task.beside, explained)
        if task.risk:
            so_far.risks += risk_figures(name, explained, rows, path, measuring)
    except KeyboardInterrupt as error:
        so_far.interruption = error
    except Exception as error:  # noqa: BLE001  whatever an explainer raises, the others go on
        if task.competing:
            so_far.failures[name] = f"{type(error).__name__}: {error}"
            return
        so_far.interruption = error
    if lines.size(path):
        so_far.paths[name], so_far.shown[name] = path, shown


def reported(task: Task, so_far: SoFar) -> Outcome:
    """Return what a report is made of: the aggregates of all explainers, and the explanations by the best of them."""
    whole = task.whole
    if whole is None:
        table = pd.concat([aggregates(path, name) for name, path in so_far.paths.items()], ignore_index=True)
        ranked = ranking(so_far.paths)
    else:
        table, ranked = whole.figures, tuple(name for name in whole.ranking if name in so_far.paths)
    return Outcome(
        source=task.source,
        rows=task.rows,
        paths={name: so_far.paths[name] for name in ranked},
        kept=so_far.shown[ranked[0]].items,
        figures=table,
        notes=(*_sampled(task), *_notes(table), *unanswered(so_far.paths)),
        failures={**({} if whole is None else whole.failures), **so_far.failures},
        count=task.measuring.count,
        seed=task.measuring.seed,
        time_limit_s=task.measuring.time_limit_s,
    )


def _logged(task: Task, so_far: SoFar, logbook: Logbook) -> Evaluation:
    """Log what is there and return it."""
    outcome = reported(task, so_far)
    table = outcome.figures
    if so_far.risks:
        table = pd.concat([table, figures_table(so_far.risks)], ignore_index=True)
    metrics, ranked = flat(table, by_explainer=task.competing), tuple(outcome.paths)
    if task.competing:
        metrics |= of_the_winner(metrics, ranked[0])
    if logbook.metrics or so_far.interruption is not None:
        logbook.note_metrics(task.logged(metrics))
    logbook.note_tables(so_far.paths, table)
    logbook.note_pictures(pictures(outcome.paths, table, ranked, _named(task.source.explained)))
    notes = (*outcome.notes, *_unlogged(task), *_unknown(task, metrics))
    findings = Findings(table, ranked, task.columns)
    logbook.note_words(told.evaluation_note(findings, so_far.failures, notes, logbook.folder))
    material = _material(outcome)
    return Evaluation(
        metrics=metrics,
        logged=task.logged(metrics),
        aggregates=table,
        ranking=ranked,
        failures=outcome.failures,
        notes=notes,
        run_id=logbook.run_id,
        artifacts={name: f"{logbook.folder}/{path.name}" for name, path in so_far.paths.items()},
        source=task.source,
        rows=task.rows,
        total=task.total,
        report="" if material is None else log_report(material, logbook.folder),
        material=material,
    )


def _named(explained: ExplainedModel) -> Callable[[str], str]:
    """Return what people call the features of a model."""
    return Speaker(features={feature.name: feature for feature in explained.space.features}).name


def _material(outcome: Outcome) -> Material | None:
    try:
        return material_of(outcome)
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the evaluation stands
        failed(error)
        return None


def _unlogged(task: Task) -> Iterator[str]:
    if task.source.model_id is None:
        yield "the model has no LoggedModel in this store: metrics are those of the run alone"


def _sampled(task: Task) -> Iterator[str]:
    """Yield what is known of a sample of the rows alone."""
    if task.whole is not None:
        shown = f"{len(task.rows):,} of the {task.total:,} rows, drawn by the seed"
        yield f"figures are those of all rows; lines, distances in pictures, and the report show {shown}"


def _notes(table: pd.DataFrame) -> Iterator[str]:
    """Yield what a reader should know."""
    whole = table[table["group"] == ""]
    if "coverage" not in set(whole["metric"]):
        yield "no row misses the target: nothing was to be explained"
    sizes = table[(table["group"] != "") & (table["metric"] == "rows")].drop_duplicates("group")
    for group, rows in zip(sizes["group"], sizes["value"], strict=True):
        if rows < LEAST_SURE:
            yield f"{group} has {rows:.0f} rows: too few for a standard error"


def _unknown(task: Task, metrics: Mapping[str, float]) -> Iterator[str]:
    """Yield which further metrics do not exist."""
    for asked in unmatched(metrics, task.metrics):
        yield f"no metric is called {asked!r}; {did_you_mean(asked, metrics, 'metrics')}"


def _told(found: Evaluation | None, task: Task) -> str:
    if found is None:
        return "interrupted before any row was measured"
    table = found.aggregates
    measured = table[(table["group"] == "") & (table["metric"] == "rows")]
    done = ", ".join(
        f"{rows:,.0f} by {name}" for name, rows in zip(measured["explainer"], measured["value"], strict=True)
    )
    return f"interrupted: of {task.total:,} rows, {done} were measured; they are logged to run {found.run_id}"


def _labels(rows: pd.DataFrame, labels: str | ArrayLike | None) -> np.ndarray[Any, Any] | None:
    if isinstance(labels, str):
        if labels not in rows.columns:
            raise InputError(
                "labels", f"{labels!r} is no column of rows", did_you_mean(labels, rows.columns, "columns")
            )
        labels = rows[labels].to_numpy()
    if labels is None:
        return None
    known = np.asarray(labels)
    if known.shape != (len(rows),):
        raise InputError("labels", f"{known.shape} labels for {len(rows)} rows", "pass one label per row")
    return known
