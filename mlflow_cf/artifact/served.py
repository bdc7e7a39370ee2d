"""The served model: what ``mlflow models serve`` and ``mlflow.pyfunc.load_model`` talk to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR

from mlflow_cf.artifact.log import load_folder
from mlflow_cf.errors import CounterfactualError, frames
from mlflow_cf.explained import ExplainedModel

SERVER = "mlflow.pyfunc.scoring_server.app"  # what `mlflow models serve` runs
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
        except Exception as error:  # noqa: BLE001  whatever it is, it must not leave with its message
            kind = type(error).__name__
            _logger.error("a request failed with %s", kind)  # noqa: TRY400
            _logger.debug("%s", frames(error))  # and no more: its message may quote values
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
    explained.warm_up()
    return ServedModel(explained, SERVER in sys.modules)
