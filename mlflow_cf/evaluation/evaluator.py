"""The evaluator ``counterfactual`` of ``mlflow.models.evaluate``; MLflow finds it by its entry point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mlflow.models.evaluation import EvaluationResult, ModelEvaluator

MODEL_TYPE: Final = "counterfactual"
MEASURING: Final = ("count", "seed", "time_limit_s", "max_evaluations", "certify")  # as in `Measuring`
OPTIONS: Final = ("explainers", "groups", "risk", *MEASURING)  # as in `evaluate`


class CounterfactualEvaluator(ModelEvaluator):
    """Evaluates explained models, and nothing else.

    ``mlflow.models.evaluate(uri, rows, model_type="counterfactual", evaluators="counterfactual")`` returns what
    `mlflow_cf.evaluate` finds: its metrics, the lines of every explainer and the figures as artifacts. `targets` are
    its labels, and `evaluator_config` may hold its other options.
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
        # MLflow imports this module wherever it evaluates anything: what it takes is imported when it is asked for
        from mlflow_cf.evaluation.plugin import evaluated  # noqa: PLC0415

        return evaluated(model, dataset, run_id, dict(evaluator_config or {}), model_id)
