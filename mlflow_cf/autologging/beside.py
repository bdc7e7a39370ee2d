"""What is logged beside a model: the explained model made from it, and how good its answers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import mlflow
import numpy as np
import pandas as pd
from mlflow.models.model import ModelInfo

from mlflow_cf.artifact.publish.log import log_beside
from mlflow_cf.autologging.fitted_rows import FittedRows, rows_of_running_fit
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.logged import Logbook, dataset_of
from mlflow_cf.evaluation.measure.evaluate import carry_out, task_of
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.goal import BoundTarget, spread_of
from mlflow_cf.model.flavors import OWN_FLAVOR, open_native
from mlflow_cf.model.versions import open_versions
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import OtherModels, assemble, warned

MOST_ROWS: Final = 5_000  # of a background: there may be millions, and plausibility looks at all pairs of rows
SUFFIX: Final = "_explained"  # of the name of an explained model
FOLDER: Final = "counterfactual"  # of a run's artifacts; a folder per model in it
NOT_EXPLAINED: Final = frozenset({OWN_FLAVOR, "shap"})  # explanations themselves


@dataclass(frozen=True, eq=False)
class Asked:
    """What `autolog` was asked for; its arguments say more."""

    rows: FittedRows | None
    options: WrapOptions
    evaluate_rows: int
    time_limit_s: float | None
    log_models: bool
    registered_model_name: str | None
    silent: bool


def explain_beside(info: ModelInfo, asked: Asked) -> Source | None:
    """Explain the model that MLflow has logged as `info` says, in the active run; None where it is not for us.

    Raises:
        InputError: its rows are not known, or it cannot be explained so.
    """
    if info.run_id is None or NOT_EXPLAINED & set(info.flavors):
        return None
    run = mlflow.active_run()
    if run is None or run.info.run_id != info.run_id:
        raise InputError("run_id", f"run {info.run_id} is not the active one", "log the model in an active run")
    found = asked.rows or rows_of_running_fit()
    if found is None:
        fact = "the rows that this model was fitted on are not known"
        raise InputError("data", fact, "call mlflow_cf.autolog(data=X_train), or let MLflow's autolog log the model")
    rows, options = _sample(found, asked.options.seed), asked.options
    if not asked.log_models:
        opened = open_native(info.model_uri, rows=rows.data)
        others = OtherModels(open_versions(options.versions, rows.data, None))
        return Source(warned(assemble(opened, rows.data, rows.labels, options, others, rows.counted)))
    name = f"{info.name or 'model'}{SUFFIX}"
    data = rows.data if rows.counted is None else rows.counted
    logged, explained = log_beside(info.model_uri, name, data, rows.labels, options, asked.registered_model_name)
    return Source(explained, logged.model_id)


def measure_beside(source: Source, info: ModelInfo, asked: Asked) -> None:
    """Measure the answers of an explained model to rows that miss the target, and log what comes of it to the run."""
    name, rows = info.name or "model", _refused(source.explained, asked.evaluate_rows, asked.options.seed)
    task = task_of(source, rows, Measuring(None, time_limit_s=asked.time_limit_s))
    carry_out(task, Logbook(str(info.run_id), f"{FOLDER}/{name}", source.model_id, dataset_of(task.rows, name)))


def _sample(rows: FittedRows, seed: int) -> FittedRows:
    """Return no more rows than a background may have, with their labels."""
    if len(rows.data) <= MOST_ROWS or rows.counted is not None:
        return rows
    kept = np.sort(np.random.default_rng(seed).choice(len(rows.data), MOST_ROWS, replace=False))
    data = rows.data.iloc[kept] if isinstance(rows.data, pd.DataFrame) else rows.data[kept]
    return FittedRows(data, None if rows.labels is None else rows.labels[kept])


def _refused(explained: ExplainedModel, most: int, seed: int) -> pd.DataFrame:
    """Return background rows that miss the target (m, d); any rows, if none does."""
    target = BoundTarget(explained.policy.target, explained.model, spread=spread_of(explained.outcome))
    missing = np.flatnonzero(~target.met(explained.outcome))
    places = missing if len(missing) else np.arange(len(explained.background))
    kept = np.sort(np.random.default_rng(seed).permutation(places)[:most])
    return explained.background.iloc[kept].reset_index(drop=True)
