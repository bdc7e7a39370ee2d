"""The served model behind ``mlflow models serve`` and ``mlflow.pyfunc.load_model``, and its replies as a table.

Also from the id of a trace to its explanation computed again, by the artifact that answered or by another one.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR
from mlflow.types import Schema
from numpy.typing import DTypeLike, NDArray

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.artifact.nested import for_spark
from mlflow_cf.artifact.publish.signature import signature_of
from mlflow_cf.audit.counters import Counters, RequestNotes, counters_of_environment
from mlflow_cf.audit.record import ATTRIBUTE, AnsweredBy, Record, Replay, replay
from mlflow_cf.audit.trace import Audit, used_libraries, versions
from mlflow_cf.errors import ArtifactError, CounterfactualError, InputError, frames
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Rows
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch
from mlflow_cf.request.admission import CROWDED
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
        columns: the schema by which MLflow makes columns of Spark of replies, in its workers.
        counters: count requests, where the server's environment asks for it.
    """

    explained: ExplainedModel
    within_s: float | None = None
    audit: Audit | None = None
    columns: Schema | None = None
    counters: Counters | None = None

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer rows with predictions and counterfactuals, one record per row.

        Raises:
            MlflowException: InputError for a request that cannot be answered (400); a bare message without any value
                for everything unforeseen, which MLflow would otherwise send to the client with its stack trace.
        """
        with nullcontext(RequestNotes()) if self.counters is None else self.counters.request() as notes:
            try:
                return self._replies(model_input, params, notes)
            except CounterfactualError:
                notes.outcome = "refused"
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, it must not leave with its message
                kind = type(error).__name__
                _logger.error("a request failed with %s", kind)  # noqa: TRY400
                _logger.debug("%s", frames(error))  # and no more: its message may quote values
                message = f"the model could not answer this request ({kind})"
                raise MlflowException(message, error_code=INTERNAL_ERROR) from None

    def _replies(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None, notes: RequestNotes
    ) -> pd.DataFrame:
        if self.within_s is not None:  # before columns are added to a table of whatever length
            check_rows(model_input, self.explained.policy.limits.rows)
        rows = model_input
        if isinstance(rows, pd.DataFrame):  # else the explained model says what is wrong with it
            # columns that may be left out because the background has missing values in them
            absent = [f.name for f in self.explained.space.features if f.missing and f.name not in rows.columns]
            rows = rows.reindex(columns=[*rows.columns, *absent]) if absent else rows
        started_ns = time.time_ns()
        with notes.part("explaining"):
            answers = self.explained.request(rows, params, within_s=self.within_s)
        with notes.part("reply"):
            if self.audit is not None:
                self.audit.note(rows, params, answers, started_ns)
            replies = answers.to_records()
            found = Replies(replies if self.columns is None else for_spark(replies, self.columns))
        if self.counters is not None:
            notes.move(answers[0].diagnostics.get("judge_seconds", 0.0) * len(answers), "explaining", "model")
            notes.rows, notes.outcome = Counter(replies["status"]), "answered"
        return found

    def get_raw_model(self) -> ExplainedModel:
        """Return the explained model itself; MLflow's own name for that."""
        return self.explained


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ServedModel:
    """Load the explained model in the MLflow model folder `path`, ready to answer; MLflow calls this."""
    del model_config  # the policy is sealed; nothing can be overridden from outside
    explained = load_folder(Path(path))
    explained.warm_up()
    audit = None if explained.policy.trace == "off" else Audit(explained, origin_of(Path(path)))
    in_spark = any(name in sys.modules for name in CROWDED)
    columns = signature_of(explained.space, explained.model).outputs if in_spark else None
    serves = SERVER in sys.modules
    return ServedModel(
        explained, patience_s() if serves else None, audit, columns, counters_of_environment() if serves else None
    )


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


_MODEL_ID: Final = re.compile("m-[0-9a-zA-Z]+")


def origin_of(folder: Path) -> AnsweredBy:
    """Return what names the explained model in an MLflow model folder.

    Raises:
        ArtifactError: there is none in it.
    """
    try:
        meta = Model.load(str(folder / "MLmodel"))
        manifest = str(meta.flavors[OWN_FLAVOR]["manifest_sha256"])
    except (MlflowException, KeyError, TypeError) as error:
        fix = "pass one that mlflow_cf.log_model has logged"
        raise ArtifactError("MLmodel", f"names no explained model ({type(error).__name__})", fix) from None
    return AnsweredBy(meta.model_id or "", manifest, versions(used_libraries()))


def replay_trace(trace_id: str, *, model_uri: str | Path | None = None, rows: Rows | None = None) -> Replay:
    """Compute the explanation of a trace again.

    Args:
        trace_id: MLflow's id of the trace, ``tr-...``.
        model_uri: the model to compute it with; None: the one that the trace names, and no other artifact.
        rows: the row among others, where the trace holds its digest alone.

    Raises:
        InputError: there is no such trace, or none of ours; no such model or row, or they do not go together.
        ArtifactError: the model is not what answered, or damaged.
    """
    try:
        trace = MlflowClient().get_trace(trace_id)
    except MlflowException as error:
        fix = "check the id, and MLFLOW_TRACKING_URI"
        raise InputError("trace", f"{trace_id!r} cannot be fetched ({error.message.rstrip('.')})", fix) from error
    root: Any = next((span for span in trace.data.spans if span.parent_id is None), None)
    if root is None:
        raise InputError("trace", "holds no span", "it may not have been sent in full yet; try again in a moment")
    record = Record.read(root.inputs, root.outputs, root.attributes.get(ATTRIBUTE))
    if model_uri is None and not _MODEL_ID.fullmatch(record.origin.model_id):
        raise InputError("trace", "it names no logged model: a folder answered", "say which: --model-uri FOLDER")
    folder = fetch(model_uri or f"models:/{record.origin.model_id}")
    notes = _notes(record, origin_of(folder), deliberate=model_uri is not None)  # before any code of the model runs
    return changed(replay(record, load_folder(folder), rows), notes=tuple(notes))


def _notes(record: Record, origin: AnsweredBy, *, deliberate: bool) -> list[str]:
    """Return what is to be known of computing a record again with the model of this origin.

    ArtifactError if it is not the artifact that answered, and that is not `deliberate`.
    """
    notes = []
    if origin.manifest_sha256 != record.origin.manifest_sha256:
        fact = f"manifest {origin.manifest_sha256[:12]}... instead of {record.origin.manifest_sha256[:12]}..."
        if not deliberate:
            fix = "name the model with --model-uri to compare with what it is now"
            raise ArtifactError("model", f"is not the artifact that answered: {fact}", fix)
        notes.append(f"compared with another artifact than the one that answered: {fact}")
    then = record.origin.versions
    now = versions(then)
    notes += [
        f"{name} was {then[name]}, is {now.get(name, 'not installed')}" for name in then if now.get(name) != then[name]
    ]
    if record.cut == "clock":
        notes.append("cut by the clock; cannot be expected to be identical")
    return notes
