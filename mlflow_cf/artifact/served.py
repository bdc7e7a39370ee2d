"""The served model: what ``mlflow models serve`` and ``mlflow.pyfunc.load_model`` talk to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR

from mlflow_cf.artifact.log import load_folder
from mlflow_cf.errors import CounterfactualError, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.problem import BoundTarget, spread_of

SERVER = "mlflow.pyfunc.scoring_server.app"  # what `mlflow models serve` runs
WARM_OPENED, WARM_SCORED = 20_000, 200  # evaluations: some milliseconds of a structure, some calls of a model
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """An explained model behind MLflow's pyfunc interface; safe to share between threads.

    Attributes:
        explained: the explained model.
        served: whether a client waits for each reply; long tables take their time otherwise.
    """

    explained: ExplainedModel
    served: bool = False

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer rows with predictions and counterfactuals, one record per row.

        Raises:
            MlflowException: InputError for a request that cannot be answered (400); a bare message without any value
                for everything unforeseen, which MLflow would otherwise send to the client with its stack trace.
        """
        try:
            return self.explained.predict(self._completed(model_input), self._capped(params) if self.served else params)
        except CounterfactualError:
            raise
        except Exception as error:
            kind = type(error).__name__
            _logger.error("a request failed with %s", kind, exc_info=_logger.isEnabledFor(logging.DEBUG))  # noqa: TRY400
            message = f"the model could not answer this request ({kind})"
            raise MlflowException(message, error_code=INTERNAL_ERROR) from None

    def get_raw_model(self) -> ExplainedModel:
        """Return the explained model itself; MLflow's own name for that."""
        return self.explained

    def _capped(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Add the policy's time limit, which holds for a request of whatever length, where a request names none."""
        asked = (params or {}).get("counterfactual") or {}
        if not isinstance(asked, Mapping) or asked.get("time_limit_s") is not None:
            return params
        limit = self.explained.policy.limits.time_limit_s
        return {**(params or {}), "counterfactual": {**asked, "time_limit_s": limit}}

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that may be left out because the background has missing values in them."""
        if not isinstance(rows, pd.DataFrame):
            return rows  # the explained model says what is wrong with it
        absent = [f.name for f in self.explained.space.features if f.missing and f.name not in rows.columns]
        return rows.reindex(columns=[*rows.columns, *absent]) if absent else rows


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ServedModel:
    """Load the explained model in the MLflow model folder `path`, ready to answer; MLflow calls this."""
    del model_config  # the policy is sealed; nothing can be overridden from outside
    explained = load_folder(Path(path))
    warm_up(explained)
    return ServedModel(explained, SERVER in sys.modules)


def warm_up(explained: ExplainedModel) -> None:
    """Explain a background row, so that no request waits for what is compiled or loaded on first use."""
    bound = BoundTarget(explained.policy.target, explained.model, spread=spread_of(explained.outcome))
    row = int(bound.rate(explained.outcome).favourable.argmin())  # one that misses the target, if there is any
    # no clock: compiling takes longer than any search, and everything must have run once
    opened = explained.opened.structure is not None
    most = WARM_OPENED if opened else WARM_SCORED
    with suppress(InputError):  # a model that cannot predict this row, or an explainer that needs more options
        explained.explain(explained.background.iloc[[row]], max_evaluations=most, certify=opened)
