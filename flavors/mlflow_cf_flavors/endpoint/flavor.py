"""Models that answer at an address: stored are the address and what it said of the background, never a secret."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pandas as pd

from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.model import OpenModel
from mlflow_cf.model.endpoint import Endpoint
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.quiet import quietly
from mlflow_cf.validation import validated
from mlflow_cf.version import VERSION
from mlflow_cf_flavors import callables
from mlflow_cf_flavors.endpoint.body import rows_of
from mlflow_cf_flavors.endpoint.connection import Connection, same
from mlflow_cf_flavors.endpoint.surrogate import imitate
from mlflow_cf_flavors.endpoint.transport import RefusedError

MLFLOW_FLAVOR: Final = "mlflow_cf_endpoint"
FOLDER: Final = "endpoint"
FILE: Final = "endpoint.json"
MOST_BYTES: Final = 256 * 1024**2
TWICE: Final = 16  # rows that are asked about again before anything is learned of the model


def accepts(model: object) -> bool:
    """Return whether `model` is the address of an endpoint, or a connection with one."""
    return isinstance(model, Endpoint | Connection)


def requirements(model: object) -> list[str]:
    """Return the pinned requirements that ask an endpoint."""
    del model
    return [f"mlflow-cf=={VERSION}", *(f"{package}=={version(package)}" for package in ("requests", "pandas"))]


def save(
    model: object,
    path: Path,
    *,
    signature: object,
    pip_requirements: list[str],
    allow_functions: bool = False,
    background: pd.DataFrame | None = None,
) -> None:
    """Write the address as an MLflow model folder, with what it said of the `background`."""
    import mlflow.pyfunc
    from mlflow.models import Model

    del allow_functions
    connection = _connected(model)
    known = {} if background is None else connection.answers(background)
    written = {"endpoint": connection.endpoint.model_dump(mode="json"), "answers": known}
    source = path.parent / f"{path.name}-{FOLDER}"
    source.mkdir()
    (source / FILE).write_text(json.dumps(written, allow_nan=False), encoding="utf-8")
    meta = Model()
    meta.add_flavor(MLFLOW_FLAVOR, endpoint=f"data/{source.name}")
    with quietly(UserWarning):  # no example is given: the explained model around this one brings it
        mlflow.pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(source),
            mlflow_model=meta,
            signature=signature,
            pip_requirements=pip_requirements,
        )
    (source / FILE).unlink()
    source.rmdir()


def load(path: Path) -> object:
    """Read the address of an MLflow model folder; nothing is sent.

    Raises:
        ArtifactError: it cannot be used.
    """
    from mlflow.models import Model

    place = path / str(Model.load(str(path)).flavors[MLFLOW_FLAVOR]["endpoint"]) / FILE
    return _read(place, path)


def _load_pyfunc(path: str) -> Any:
    """Return what MLflow calls the model: an object that predicts; MLflow calls this."""
    return _Served(_read(Path(path) / FILE, Path(path)))


class _Served:
    """A connection in the role of MLflow's own models."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def predict(self, rows: pd.DataFrame, params: Any = None) -> Any:
        """Answer MLflow."""
        del params
        return self._connection(rows)


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open an endpoint: ask about `rows`, unless their answers were stored, and learn what kind of answers these are.

    `output` is ``label``, ``score`` or ``value``; None: labels, unless they are real numbers. Raises InputError where
    the endpoint cannot be asked, answers something else, or answers the same row differently.
    """
    connection = _connected(model)
    if rows is None or not len(rows):
        raise InputError(
            "data", "rows are needed to learn what this endpoint answers", "pass rows of the training table"
        )
    try:
        with connection.learning():
            fresh = not connection.answers(rows.iloc[:1])
            answers = connection(rows)
            if fresh:
                _check_twice(connection, rows.iloc[:TWICE])
            connection.watch(rows)
            if output is None and getattr(answers, "dtype", None) is not None and answers.dtype.kind == "f":
                fix = "say what they are: output='score' (probability of the second class), 'value' or 'label'"
                raise InputError("output", "the endpoint answers real numbers", fix)
            found = callables.open(connection, output=output or "label", rows=rows)
    except UnavailableError as error:
        fix = "check address, headers and server, or raise its limits: mlflow_cf.Endpoint(url, ...)"
        raise InputError("model", str(error.reason), fix) from error
    except RefusedError as error:
        raise InputError("data", f"the endpoint refuses these rows ({error})", "pass its raw input columns") from error
    return replace(found, flavor=MLFLOW_FLAVOR, remote=connection, imitate=imitate)


def _check_twice(connection: Connection, rows: pd.DataFrame) -> None:
    """Refuse an endpoint that answers the same rows differently when they are asked about again."""
    again = Connection(connection.endpoint)
    with again.learning():
        again(rows)
        first, second = connection.answers(rows), again.answers(rows)
    if len(rows_of(rows)) and not all(same(first[digest], second[digest]) for digest in first):
        fact = "the endpoint answers the same rows differently when they are sent again"
        raise InputError("model", fact, "explain a model that always answers the same")


def _connected(model: object) -> Connection:
    if isinstance(model, Connection):
        return model
    if not isinstance(model, Endpoint):
        raise InputError("model", f"{type(model).__name__} is no endpoint", "pass its address, or a mlflow_cf.Endpoint")
    return Connection(model)


def _read(file: Path, folder: Path) -> Connection:
    try:
        if file.resolve().is_relative_to(folder.resolve()) and file.stat().st_size <= MOST_BYTES:
            written = json.loads(file.read_text(encoding="utf-8"))
            endpoint = validated(Endpoint, written["endpoint"], "endpoint")
            return Connection(endpoint, {bytes.fromhex(key): value for key, value in written["answers"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fact = f"cannot be read ({type(error).__name__})"
        raise ArtifactError(f"model/{FOLDER}", fact, "log the explained model again") from error
    raise ArtifactError(f"model/{FOLDER}", "is too large, or elsewhere", "log the explained model again")
