"""From the id of a trace to its explanation computed again, by the artifact that answered or by another one."""

from __future__ import annotations

import re
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, Final

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.audit.record import ATTRIBUTE, AnsweredBy, Record
from mlflow_cf.audit.replay import Replay, replay
from mlflow_cf.audit.trace import used_libraries, versions
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.features import Rows
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch

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
        InputError: there is no such trace, model or row, or they do not go together.
        ArtifactError: the model is not what answered, or damaged.
    """
    record = fetch_record(trace_id)
    if model_uri is None and not _MODEL_ID.fullmatch(record.origin.model_id):
        raise InputError("trace", "it names no logged model: a folder answered", "say which: --model-uri FOLDER")
    folder = fetch(model_uri or f"models:/{record.origin.model_id}")
    notes = _notes(record, origin_of(folder), deliberate=model_uri is not None)  # before any code of the model runs
    return changed(replay(record, load_folder(folder), rows), notes=tuple(notes))


def _notes(record: Record, origin: AnsweredBy, *, deliberate: bool) -> list[str]:
    """Return what is to be known of computing a record again with the model of this origin.

    Raises:
        ArtifactError: it is not the artifact that answered, and that is not `deliberate`.
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


def fetch_record(trace_id: str) -> Record:
    """Return what the trace of this id holds.

    Raises:
        InputError: there is none, or it is not one of ours.
    """
    try:
        trace = MlflowClient().get_trace(trace_id)
    except MlflowException as error:
        fix = "check the id, and MLFLOW_TRACKING_URI"
        raise InputError("trace", f"{trace_id!r} cannot be fetched ({error.message.rstrip('.')})", fix) from error
    root: Any = next((span for span in trace.data.spans if span.parent_id is None), None)
    if root is None:
        raise InputError("trace", "holds no span", "it may not have been sent in full yet; try again in a moment")
    return Record.read(root.inputs, root.outputs, root.attributes.get(ATTRIBUTE))
