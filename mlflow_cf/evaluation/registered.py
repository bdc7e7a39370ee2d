"""What MLflow knows of the models to compare: versions of registered names, logged models, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.artifact.inner import address
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.source import known_id

SCHEME: Final = "models:/"
READY: Final = "READY"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that may be compared.

    Attributes:
        name: what tables call it.
        source: its URI or folder, or the model itself.
        model_id: MLflow's id of the logged model, if this store has it.
        registered: name and number of the registered version, if it is one.
    """

    name: str
    source: object
    model_id: str | None = None
    registered: tuple[str, str] | None = None

    @classmethod
    def of(cls, source: object, name: str, *, named: bool) -> Candidate:
        """Return the candidate at a URI, or that is a model itself, with what MLflow knows of it.

        Args:
            source: URI, folder or model.
            name: what to call it; a URI goes by its own name unless it is `named`.
            named: whether somebody chose the name.
        """
        if isinstance(source, PyFuncModel):
            source = address(source)
        if not isinstance(source, str | Path):
            return cls(name, source)
        uri = str(source)
        if not uri.startswith(SCHEME):
            return cls(name if named else uri.rstrip("/"), source)
        version = _version_at(uri.removeprefix(SCHEME))
        if version is None:
            return cls(name if named else uri.removeprefix(SCHEME), source, _known(uri))
        return cls(
            name if named else f"{version.name}/{version.version}", source, _known(version.source), _key(version)
        )

    @property
    def has_failed(self) -> bool:
        """Whether logging it had failed, so that there is no model to speak of."""
        if self.model_id is None:
            return False
        return bool(MlflowClient().get_logged_model(self.model_id).status == LoggedModelStatus.FAILED)


def is_name(source: object) -> bool:
    """Whether `source` can only be the name of a registered model."""
    return isinstance(source, str) and ":/" not in source and not Path(source).exists()


def candidates_of(name: str, versions: Sequence[int | str] | None) -> tuple[list[Candidate], list[str]]:
    """Return the versions registered under a name, oldest first or as they are named, and notes on ignored ones.

    Raises:
        InputError: no such name, number or alias.
    """
    known = {str(one.version): one for one in _registered(name)}
    chosen = sorted(known.values(), key=lambda one: int(one.version))
    if versions is not None:
        chosen = [_chosen(name, str(asked), known) for asked in versions]
    found, notes = [], []
    for version in chosen:
        called = f"{name}/{version.version}"
        if version.status == READY:
            found.append(Candidate(called, f"{SCHEME}{called}", _known(version.source), _key(version)))
        else:
            notes.append(f"{called} is ignored: its registration is {version.status}")
    return found, notes


def _chosen(name: str, asked: str, known: dict[str, ModelVersion]) -> ModelVersion:
    if asked in known:
        return known[asked]
    try:
        return known[str(MlflowClient().get_model_version_by_alias(name, asked).version)]
    except MlflowException as error:
        fix = did_you_mean(asked, known, "versions")
        raise InputError(f"versions.{asked}", f"{name!r} has no such version or alias", fix) from error


def _registered(name: str) -> list[ModelVersion]:
    client = MlflowClient()
    quote = '"' if "'" in name else "'"
    try:
        found: list[ModelVersion] = list(client.search_model_versions(f"name={quote}{name}{quote}"))
    except MlflowException as error:
        raise InputError("model", f"the registry does not answer ({error.message})", "check the store") from error
    if not found:
        names = [model.name for model in client.search_registered_models()]
        fix = did_you_mean(name, names, "registered models") or "pass a URI, a folder or a model"
        raise InputError("model", f"no version is registered as {name!r}", fix)
    return found


def _version_at(path: str) -> ModelVersion | None:
    """Return the registered version of ``name/3`` or ``name@alias``, if this registry has it."""
    client = MlflowClient()
    name, at, alias = path.partition("@")
    try:
        if at:
            return client.get_model_version_by_alias(name, alias)
        name, _, number = path.rpartition("/")
        return client.get_model_version(name, number) if name else None
    except MlflowException:  # it says why when it is loaded
        return None


def _known(uri: str | None) -> str | None:
    """Return the id in ``models:/m-...`` if this store has such a logged model."""
    if uri is None or not uri.startswith(f"{SCHEME}m-"):
        return None
    return known_id(uri.removeprefix(SCHEME))


def _key(version: ModelVersion) -> tuple[str, str]:
    return version.name, str(version.version)
