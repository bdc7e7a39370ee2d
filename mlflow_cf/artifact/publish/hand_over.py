"""Hand a finished model folder to MLflow: logged and registered as a whole, or not at all."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.model import ModelInfo
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

from mlflow_cf.artifact.publish.account import Account
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import OWN_FLAVOR

# Tag of a logged model and of a version, by which they are found again if their ids never reached us.
PUBLICATION: Final = "cf.publication"
TRIES: Final = 3
NOT_IN_NAMES: Final = "/:.%\"'"  # of logged models
_UNKNOWN: Final = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)
_logger = logging.getLogger(__name__)


class Publication:
    """One attempt to log a model, and to register a version of it if there is a name for that."""

    def __init__(self, name: str, registered_name: str | None, tags: Mapping[str, Any]) -> None:
        self._name, self._registered_name, self._tags = name, registered_name, tags
        self._token = uuid4().hex
        self._new_name = False

    @classmethod
    def prepared(cls, name: str, registered_name: str | None, tags: Mapping[str, Any] | None = None) -> Publication:
        """Return an attempt after asking the registry about its name, so that a bad one fails before anything is built.

        Raises:
            InputError: a name that MLflow or the registry refuses, or tags that are no dict.
        """
        _check_name(name)
        if registered_name is not None:
            check_registrable(registered_name, "registered_model_name")
        if tags is not None and not isinstance(tags, Mapping):
            raise InputError("tags", f"a {type(tags).__name__} is not a dict", 'pass {"name": "value"}')
        return cls(name, registered_name, tags or {})

    def publish(self, staged: Path, account: Account, *, last: bool = True) -> ModelInfo:
        """Hand the finished folder to MLflow; call it inside of `withdrawn_on_failure`.

        Args:
            staged: the folder.
            account: what MLflow's pages shall tell of it.
            last: whether it becomes what ``mlflow.last_logged_model`` returns; it needs an active run if not.
        """
        self._new_name = self._registered_name is not None and not is_registered(self._registered_name)
        conf = Model.load(str(staged)).flavors[OWN_FLAVOR]
        # by which the logged model can be searched for and joined
        facts = {
            f"cf.{key}": str(conf[key]) for key in ("explainer", "inner_model_id", "inner_model_uri") if key in conf
        }
        tags = {key: str(value) for key, value in {**facts, **self._tags, PUBLICATION: self._token}.items()}
        info: ModelInfo = Model.log(
            artifact_path=None,
            flavor=_Staged(staged),
            flavor_name=OWN_FLAVOR,
            registered_model_name=self._registered_name,
            tags=tags,
            model_id=self._created({**facts, **account.params}, tags, last=last),
            validate_serving_input=False,  # done before, without MLflow's watch over the environment variables
        )
        self._tell(info, account)
        return info

    def _created(self, own: Mapping[str, str], tags: dict[str, str], *, last: bool) -> str:
        """Return the id of a new logged model. With the run's params, as MLflow does, but its own ones win."""
        run = mlflow.active_run()
        known = {} if run is None else MlflowClient().get_run(run.info.run_id).data.params
        params = {**known, **own}
        if last:
            return str(mlflow.initialize_logged_model(self._name, tags=tags, params=params).model_id)
        if run is None:
            raise InputError("name", "no run is active", "log it in a run")
        client, experiment = MlflowClient(), run.info.experiment_id
        return str(client.create_logged_model(experiment, self._name, run.info.run_id, tags, params).model_id)

    def _tell(self, info: ModelInfo, account: Account) -> None:
        """Describe what was published; a model is none the worse where that is not possible."""
        client = MlflowClient()
        try:
            if info.run_id is not None:
                known = client.get_run(info.run_id).data.params  # of another explained model: they cannot be changed
                new = {key: value for key, value in account.params.items() if key not in known}
                mlflow.log_params(new, run_id=info.run_id)
            if info.registered_model_version is not None and self._registered_name is not None:
                version = str(info.registered_model_version)
                client.update_model_version(self._registered_name, version, account.description)
        except Exception as error:  # noqa: BLE001  a raw error of a database, too
            _logger.warning("a model was logged, and could not be described (%s)", type(error).__name__)

    @contextmanager
    def withdrawn_on_failure(self) -> Iterator[None]:
        """Leave nothing of this attempt in store and registry if anything fails inside, or is interrupted."""
        try:
            yield
        except BaseException:
            self._withdraw()
            raise

    def _withdraw(self) -> None:
        """Delete what there is, the version first: none is ever left of a deleted model."""
        client = MlflowClient()
        ids: list[str] = []
        found = _tried("look for the logged model", lambda: ids.extend(self._logged()))
        unregistered = found and _tried(
            f"unregister it as {self._registered_name!r}", lambda: self._unregister(client, ids)
        )
        for model_id in ids:
            if not (unregistered and _tried(f"delete {model_id}", partial(client.delete_logged_model, model_id))):
                # Where nothing can be deleted, as in a database that is full, it shall at least not look complete.
                _tried(
                    f"mark {model_id} as failed",
                    partial(client.finalize_logged_model, model_id, LoggedModelStatus.FAILED),
                )

    def _logged(self) -> list[str]:
        run = mlflow.active_run()
        models = mlflow.search_logged_models(
            None if run is None else [run.info.experiment_id],
            filter_string=f"tags.`{PUBLICATION}` = '{self._token}'",
            output_format="list",
        )
        return [model.model_id for model in models]

    def _unregister(self, client: MlflowClient, ids: list[str]) -> None:
        name = self._registered_name
        if name is None:
            return
        quote = '"' if "'" in name else "'"
        versions: list[ModelVersion] = list(client.search_model_versions(f"name={quote}{name}{quote}"))
        sources = {f"models:/{model_id}" for model_id in ids}
        ours = [one for one in versions if one.source in sources or (one.tags or {}).get(PUBLICATION) == self._token]
        for version in ours:
            client.delete_model_version(name, str(version.version))
        if self._new_name and len(ours) == len(versions):
            client.delete_registered_model(name)


class _Staged:
    """A finished model folder in the role of a flavor: for `Model.log`, saving is copying."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save_model(self, path: str, mlflow_model: Model, *, validate_serving_input: bool) -> None:
        """Copy the folder to `path` and give its MLmodel the identity that MLflow has assigned."""
        del validate_serving_input  # for MLflow itself, which passes its options on
        shutil.copytree(self._folder, path)
        ready = Model.load(str(self._folder))
        for name in ("flavors", "signature", "saved_input_example_info", "model_size_bytes", "metadata"):
            setattr(mlflow_model, name, getattr(ready, name))
        mlflow_model.save(str(Path(path) / "MLmodel"))


def _check_name(name: object) -> None:
    """Refuse a name that MLflow takes for no logged model; None lets MLflow choose one."""
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError("name", f"must be a text, got {name!r}", "choose a name")
    odd = sorted(set(name) & set(NOT_IN_NAMES))
    if odd:
        fix = f"write {re.sub(f'[{NOT_IN_NAMES}]', '_', name)!r}"
        raise InputError("name", f"{name!r} has {' '.join(odd)} in it, which MLflow takes in no name", fix)


def check_registrable(name: object, path: str) -> None:
    """Ask the registry about a name for a model, which was given as the argument at `path`.

    Raises:
        InputError: the registry refuses it.
    """
    if not isinstance(name, str):
        raise InputError(path, f"must be a text, got {name!r}", "choose a name")
    try:
        is_registered(name)
    except MlflowException as error:
        raise InputError(path, error.message.rstrip("."), "choose another name") from error


def is_registered(name: str) -> bool:
    """Return whether there is a registered model of this name.

    Raises:
        MlflowException: the registry cannot say, or takes no such name.
    """
    try:
        MlflowClient().get_registered_model(name)
    except MlflowException as error:
        if error.error_code != _UNKNOWN:
            raise
        return False
    return True


def _tried(what: str, action: Callable[[], object]) -> bool:
    """Return whether `action` succeeded within a few tries; what is not there any more need not be deleted."""
    for left in reversed(range(TRIES)):
        try:
            action()
        except Exception as error:  # noqa: BLE001  a raw error of a database, too
            if isinstance(error, MlflowException) and error.error_code == _UNKNOWN:
                return True
            if not left:
                _logger.warning(
                    "logging a model failed, and what it left: could not %s (%s)", what, type(error).__name__
                )
        else:
            return True
    return False
