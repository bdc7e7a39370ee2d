"""The served model behind ``mlflow models serve`` and ``mlflow.pyfunc.load_model``, and its replies as a table."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR
from numpy.typing import DTypeLike, NDArray

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.artifact.replay import origin_of
from mlflow_cf.audit.trace import Audit
from mlflow_cf.errors import CounterfactualError, frames
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.request.rows import check_rows

LEAST_MARGIN_S = 0.5  # a request is parsed before, and its reply is written after; a call of the model may be late
MARGIN = 0.1
SERVER = "mlflow.pyfunc.scoring_server.app"  # what `mlflow models serve` runs
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """An explained model behind MLflow's pyfunc interface; safe to share between threads.

    Attributes:
        explained: the explained model.
        within_s: seconds in which a client must have its reply, where one waits for it; long tables take their time
            otherwise, however long they are.
        audit: traces what is answered, where the policy wants that.
    """

    explained: ExplainedModel
    within_s: float | None = None
    audit: Audit | None = None

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer rows with predictions and counterfactuals, one record per row.

        Raises:
            MlflowException: InputError for a request that cannot be answered (400); a bare message without any value
                for everything unforeseen, which MLflow would otherwise send to the client with its stack trace.
        """
        try:
            if self.within_s is not None:  # before columns are added to a table of whatever length
                check_rows(model_input, self.explained.policy.limits.rows)
            return self._answered(self._completed(model_input), params)
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

    def _answered(self, rows: pd.DataFrame, params: Mapping[str, Any] | None) -> pd.DataFrame:
        if self.audit is None:
            return Replies(self.explained.predict(rows, params, within_s=self.within_s))
        started_ns = time.time_ns()
        answers = self.explained.request(rows, params, within_s=self.within_s)
        self.audit.note(rows, params, answers, started_ns)
        return Replies(answers.to_records())

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
    audit = None if explained.policy.trace == "off" else Audit(explained, origin_of(Path(path)))
    return ServedModel(explained, patience_s() if SERVER in sys.modules else None, audit)


def patience_s() -> float:
    """Return the seconds after which MLflow's server gives up on a request, less what is needed around our part."""
    limit = float(MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.get())
    return max(limit - max(LEAST_MARGIN_S, MARGIN * limit), limit / 2)


class Replies(pd.DataFrame):
    """One record per row; where a single column is expected, they stand for their predictions.

    MLflow's evaluator of classifiers is told which column holds the predictions, and yet takes whatever a model returns
    for them: it makes an array of it, and a column of its deep copy (``ClassifierEvaluator`` of MLflow 3). As a table,
    the replies are like any other; what is selected from them is a plain one.
    """

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001
        """Return the predictions (m,)."""
        del copy  # it always is one
        return np.array(self["prediction"].tolist(), dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> pd.Series:
        """Return the predictions (m,); `copy` copies the whole table."""
        del memo
        return pd.Series(np.asarray(self), index=self.index, name="prediction")
