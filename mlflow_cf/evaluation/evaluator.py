"""The evaluator ``counterfactual`` of ``mlflow.models.evaluate``, which MLflow finds by its entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import EvaluationArtifact
from mlflow.models.evaluation import EvaluationResult, ModelEvaluator
from mlflow.models.evaluation.artifacts import (
    CsvEvaluationArtifact,
    ParquetEvaluationArtifact,
    TextEvaluationArtifact,
)

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.logged import Logbook
from mlflow_cf.evaluation.measure.evaluate import carry_out, task_of
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.result import Evaluation
from mlflow_cf.evaluation.source import source_of

MODEL_TYPE: Final = "counterfactual"
MEASURING: Final = ("count", "seed", "time_limit_s", "max_evaluations", "certify")  # as in `Measuring`
OPTIONS: Final = ("explainers", "groups", "risk", "metrics", *MEASURING)  # as in `evaluate`


class CounterfactualEvaluator(ModelEvaluator):
    """Evaluates explained models, and nothing else.

    ``mlflow.models.evaluate(uri, rows, model_type="counterfactual", evaluators="counterfactual")`` returns what
    `mlflow_cf.evaluate` finds: its headline metrics (MLflow logs whatever the result holds), the lines of every
    explainer and all figures as artifacts. `targets` are its labels, and `evaluator_config` may hold its other options:
    ``metrics`` names further metrics that the result shall hold.

    Raises:
        InputError: no explained model, no table, or options that `mlflow_cf.evaluate` does not have.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str | None, evaluator_config: Mapping[str, Any] | None, **kwargs: Any) -> bool:  # noqa: D102  MLflow says what it is
        del evaluator_config, kwargs
        return model_type == MODEL_TYPE

    def evaluate(  # noqa: D102, PLR0913  MLflow says what it is, and with which arguments
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        extra_metrics: Any = None,
        custom_artifacts: Any = None,
        predictions: str | None = None,
        model_id: str | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        del model_type, extra_metrics, custom_artifacts, predictions, kwargs
        config = dict(evaluator_config or {})
        for key in config:
            if key not in OPTIONS:
                raise InputError(f"evaluator_config.{key}", "not an option", did_you_mean(key, OPTIONS, "options"))
        rows = dataset.features_data
        if isinstance(rows, np.ndarray):
            rows = pd.DataFrame(rows, columns=dataset.feature_names)
        how = Measuring(**{key: value for key, value in config.items() if key in MEASURING})
        others = {key: value for key, value in config.items() if key not in MEASURING}
        task = task_of(
            source_of(model), rows, how, labels=dataset.labels_data if dataset.has_targets else None, **others
        )
        # MLflow ties the data set to the run itself, and logs metrics where it knows the model's id: not of versions
        logbook = Logbook(run_id, MODEL_TYPE, task.source.model_id, None, metrics=model_id is None)
        found = carry_out(task, logbook)
        return EvaluationResult(dict(found.logged), dict(_artifacts(found)), run_id)


def _artifacts(found: Evaluation) -> Iterator[tuple[str, EvaluationArtifact]]:
    for name, path in found.artifacts.items():
        lines = found.table.loc[found.table["explainer"] == name].reset_index(drop=True)
        uri = mlflow.get_artifact_uri(path)
        yield f"{MODEL_TYPE}_rows_{name}", ParquetEvaluationArtifact(uri=uri, content=lines)
    uri = mlflow.get_artifact_uri(f"{MODEL_TYPE}/metrics.csv")
    yield f"{MODEL_TYPE}_metrics", CsvEvaluationArtifact(uri=uri, content=found.aggregates)
    if found.report:
        uri = mlflow.get_artifact_uri(found.report)
        yield f"{MODEL_TYPE}_report", TextEvaluationArtifact(uri=uri, content=mlflow.artifacts.load_text(uri))
