"""Hand a finished model folder to MLflow: logged and registered as a whole, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.model import ModelInfo
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import OWN_FLAVOR


def publish(
    staged: Path, name: str, registered_model_name: str | None, tags: Mapping[str, Any], metadata: Any
) -> ModelInfo:
    """Hand the finished folder to MLflow."""
    facts = _facts(Model.load(str(staged)).flavors[OWN_FLAVOR])
    flavor = _Staged(staged)
    with flavor.withdrawn_on_failure():
        info: ModelInfo = Model.log(
            artifact_path=None,
            name=name,
            flavor=flavor,
            flavor_name=OWN_FLAVOR,
            registered_model_name=registered_model_name,
            params=facts,
            tags={**facts, **tags},
            metadata=None if metadata is None else dict(metadata),
            validate_serving_input=False,  # done before, without MLflow's watch over the environment variables
        )
        return info


class _Staged:
    """A finished model folder in the role of a flavor: for `Model.log`, saving is copying."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model_id: str | None = None

    def save_model(self, path: str, mlflow_model: Model, *, validate_serving_input: bool) -> None:
        """Copy the folder to `path` and give its MLmodel the identity that MLflow has assigned."""
        del validate_serving_input  # for MLflow itself, which passes its options on
        self._model_id = mlflow_model.model_id
        shutil.copytree(self._folder, path)
        ready = Model.load(str(self._folder))
        for name in ("flavors", "signature", "saved_input_example_info", "model_size_bytes", "metadata"):
            setattr(mlflow_model, name, getattr(ready, name))
        mlflow_model.save(str(Path(path) / "MLmodel"))

    @contextmanager
    def withdrawn_on_failure(self) -> Iterator[None]:
        """Delete the logged model if publishing it fails half-way."""
        done = False
        try:
            yield
            done = True
        finally:
            if not done and self._model_id is not None:
                with suppress(MlflowException):
                    MlflowClient().delete_logged_model(self._model_id)


def check_registry_name(name: str | None) -> None:
    """Ask the registry about the name before anything is built, so that a bad one cannot fail after logging."""
    if name is None:
        return
    try:
        MlflowClient().get_registered_model(name)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise InputError("registered_model_name", error.message.rstrip("."), "choose another name") from error


def _facts(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return what tags and params of the logged model say, so that it can be searched for and joined."""
    names = {
        "explainer": "cf.explainer",
        "inner_model_id": "cf.inner_model_id",
        "inner_model_uri": "cf.inner_model_uri",
    }
    return {tag: str(conf[key]) for key, tag in names.items() if key in conf}
