"""`evaluate`: a table explained, measured, and logged to MLflow; several explainers compete on the same rows.

Also what answers give away, measured: who was in the training data, and the model itself.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.artifact.publish.log import log_with_explainer
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.logged import Logbook, dataset_of, in_run
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.aggregates import LEAST_SURE, Figure, aggregates, figures_table, flat
from mlflow_cf.evaluation.measure.lines import GroupSource
from mlflow_cf.evaluation.measure.measured import Measuring, inliers_of, measure_rows, measured_table
from mlflow_cf.evaluation.measure.reported import Outcome, failed, log_report, material_of
from mlflow_cf.evaluation.measure.result import Evaluation, contestants, ranking, unanswered
from mlflow_cf.evaluation.measure.shown import Shown
from mlflow_cf.evaluation.source import ModelSource, Source, source_of
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import as_rows
from mlflow_cf.metrics import Labelled, extraction_fidelity, membership_auc
from mlflow_cf.reporting.data import Material


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
    """

    source: Source
    rows: pd.DataFrame
    beside: lines.Beside
    explainers: Mapping[str, ExplainerSource]
    measuring: Measuring
    competing: bool
    risk: bool = False


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
    rows: pd.DataFrame,
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
    name: str = "counterfactual",
    register_winner: str | None = None,
) -> Evaluation:
    """Explain a table, measure the answers, and log everything to the active run, or else to a new one.

    Metrics ``cf/...`` are logged to the run and to the model's LoggedModel, with `rows` as their data set; one line per
    row as parquet; the first 1,000 as a table for MLflow's pages; figures; and ``report.html``, a page to read. The
    lines and the page hold the answers, and with them what rows had: whoever may read the run can read them. A line
    depends on its row alone, whatever stands beside.

    Args:
        model: an explained model in memory, a loaded pyfunc of one, or its URI or folder.
        rows: rows to explain (m, d); other columns than the model's are welcome.
        labels: (m,) true targets, or the column of `rows` with them: the share of right predictions, or their mean
            absolute error, is logged beside.
        explainers: several explainers, by name or as objects, on the same rows; None: the model's own. The winner's
            answers are all valid and lawful; then coverage decides, then mean distance on the rows that all answered,
            then seconds. Who fails is named with the reason.
        count: counterfactuals per row.
        groups: a column of `rows`, several, or column -> edges of bins: figures of each group beside those of all.
        seed, max_evaluations, certify: as in `ExplainedModel.explain`.
        time_limit_s: seconds for all rows of an explainer; None: no clock.
        risk: also measure what answers give away, as ``cf/risk/...`` (see `risk_figures`), on rows that
            the model was not trained on; up to 1,000 of its background are explained beside them.
        name: folder of the run's artifacts.
        register_winner: registers a new version under this name: the model as it is, with the winner as its explainer.

    Raises:
        InputError: arguments that do not fit, or no explainer that can do it.
        KeyboardInterrupt: by Ctrl-C; what was measured by then is logged, and a run of our own has failed.
    """
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    task = task_of(source_of(model), rows, how, labels=labels, explainers=explainers, groups=groups, risk=risk)
    folder = task.source.folder
    if register_winner is not None and folder is None:
        fix = "pass the URI or folder of a logged one"
        raise InputError("register_winner", "the files of this model are not known", fix)
    with in_run() as run_id:
        found = carry_out(task, Logbook(run_id, name, task.source.model_id, dataset_of(task.rows, name)))
        if register_winner is None or folder is None:
            return found
        info = log_with_explainer(folder, task.explainers[found.winner], "explained", register_winner)
        version = info.registered_model_version
        return replace(found, version=None if version is None else int(version))


def task_of(
    source: Source,
    rows: pd.DataFrame,
    measuring: Measuring,
    *,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    groups: GroupSource | None = None,
    risk: bool = False,
) -> Task:
    """Return what `evaluate` is asked for, checked before any run is opened.

    Raises:
        InputError: arguments that do not fit.
    """
    table = as_rows(rows, source.explained.space.columns)
    source.explained.space.select(table)
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    beside = lines.Beside.of(table, _labels(table, labels), groups, source.explained)
    chosen = contestants([source.explained.explainer] if explainers is None else explainers)
    measuring = replace(measuring, lof=inliers_of(source.explained))  # learned once for all explainers
    return Task(source, table, beside, chosen, measuring, explainers is not None, risk)


def carry_out(task: Task, logbook: Logbook) -> Evaluation:
    """Do a task in the active run, and log what comes of it, whole or not."""
    so_far = SoFar()
    with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch:
        logbook.note_input()
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
    table = pd.concat([aggregates(path, name) for name, path in so_far.paths.items()], ignore_index=True)
    ranked = ranking(so_far.paths)
    return Outcome(
        source=task.source,
        rows=task.rows,
        paths={name: so_far.paths[name] for name in ranked},
        kept=so_far.shown[ranked[0]].items,
        figures=table,
        notes=(*_notes(table), *unanswered(so_far.paths)),
        failures=dict(so_far.failures),
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
    metrics = flat(table, by_explainer=task.competing)
    if logbook.metrics or so_far.interruption is not None:
        logbook.note_metrics(metrics)
    logbook.note_tables(so_far.paths, table)
    material = _material(outcome)
    return Evaluation(
        metrics=metrics,
        aggregates=table,
        ranking=tuple(outcome.paths),
        failures=outcome.failures,
        notes=(*outcome.notes, *([] if task.source.model_id else [UNKNOWN])),
        run_id=logbook.run_id,
        artifacts={name: f"{logbook.folder}/{path.name}" for name, path in so_far.paths.items()},
        source=task.source,
        rows=task.rows,
        report="" if material is None else log_report(material, logbook.folder),
        material=material,
    )


UNKNOWN: Final = "the model has no LoggedModel in this store: metrics are those of the run alone"


def _material(outcome: Outcome) -> Material | None:
    try:
        return material_of(outcome)
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the evaluation stands
        failed(error)
        return None


def _notes(table: pd.DataFrame) -> Iterator[str]:
    """Yield what a reader should know."""
    whole = table[table["group"] == ""]
    if "coverage" not in set(whole["metric"]):
        yield "no row misses the target: nothing was to be explained"
    sizes = table[(table["group"] != "") & (table["metric"] == "rows")].drop_duplicates("group")
    for group, rows in zip(sizes["group"], sizes["value"], strict=True):
        if rows < LEAST_SURE:
            yield f"{group} has {rows:.0f} rows: too few for a standard error"


def _told(found: Evaluation | None, task: Task) -> str:
    if found is None:
        return "interrupted before any row was measured"
    table = found.aggregates
    measured = table[(table["group"] == "") & (table["metric"] == "rows")]
    done = ", ".join(
        f"{rows:,.0f} by {name}" for name, rows in zip(measured["explainer"], measured["value"], strict=True)
    )
    return f"interrupted: of {len(task.rows):,} rows, {done} were measured; they are logged to run {found.run_id}"


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


QUERIES: Final = (100, 1_000)  # of an attacker who copies the model
MOST_MEMBERS: Final = 1_000  # rows of the background that are explained beside the others


def risk_figures(
    name: str, explained: ExplainedModel, rows: pd.DataFrame, path: Path, measuring: Measuring
) -> Iterator[Figure]:
    """Yield the risks of an explainer whose lines for `rows` (m, d) are in the file `path`.

    ``risk/membership_auc`` tells rows of the background from `rows`, which should not be in it; there is none where no
    rows are kept. ``risk/extraction_fidelity_100`` is the share of background rows that a copy of the model decides
    as the model does, which has learned from the first 100 rows and their counterfactuals;
    ``risk/extraction_baseline_100`` is that of a copy from these rows alone. Likewise of 1,000, if there are as many.
    """
    known = pd.read_parquet(path, columns=["mixed", "counterfactual"])
    if explained.policy.privacy.keeps_rows:
        seed = explained.policy.seed if measuring.seed is None else measuring.seed
        members = explained.background.sample(min(MOST_MEMBERS, len(explained.background)), random_state=seed)
        inside = measured_table(explained, members, replace(measuring, lof=False))["mixed"].to_numpy()
        area = membership_auc(inside, known["mixed"].to_numpy())
        if area is not None:
            yield Figure(name, "", "risk/membership_auc", area, None, len(inside) + len(known))
    if explained.model.regression:
        return
    found = known["counterfactual"]
    for queries in (n for n in QUERIES if n <= len(known)):
        asked = explained.space.select(rows.iloc[:queries])
        answers = explained.space.from_values([json.loads(one) for one in found[:queries].dropna()])
        for figure, tables in {"fidelity": [asked, answers], "baseline": [asked]}.items():
            share = _fidelity(explained, tables)
            if share is not None:
                yield Figure(name, "", f"risk/extraction_{figure}_{queries}", share, None, queries)


def _fidelity(explained: ExplainedModel, tables: list[pd.DataFrame]) -> float | None:
    """Return how well a copy that learns from tables (m, d) decides the background."""
    codes, labels = [], []
    for table in tables:
        space = explained.space.covering(table)
        found, faults = space.encode_rows(table)
        good = np.delete(found, list(faults), axis=0)
        if len(good):
            codes.append(good)
            labels.append(explained.judge.verdict(space.decode(good)).codes)
    if not codes:
        return None
    held_out = Labelled(explained.bound_policy.background, explained.outcome.codes)
    return extraction_fidelity(Labelled(np.concatenate(codes), np.concatenate(labels)), held_out)
