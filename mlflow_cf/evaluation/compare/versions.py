"""The versions to compare: found in MLflow by name, alias or URI, loaded, and plain models wrapped like the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.artifact.publish.inner import address
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.source import known_id
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import BackgroundRows, FeatureSpace
from mlflow_cf.model.flavors import OWN_FLAVOR, check_is_model, fetch, open_native
from mlflow_cf.model.parity import with_levels_of
from mlflow_cf.request.context import ExtraModels, LearnedOnce

SCHEME: Final = "models:/"
READY: Final = "READY"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that may be compared.

    Attributes:
        name: what tables call it.
        source: its URI or folder, or the model itself.
        model_id: MLflow's id of the logged model, if this store has it.
        registered: the registered version, if it is one.
    """

    name: str
    source: object
    model_id: str | None = None
    registered: ModelVersion | None = None

    @classmethod
    def of(cls, source: object, name: str, place: int) -> Candidate:
        """Return the candidate at a URI or folder, or that is a model itself, with what MLflow knows of it.

        Without a `name` that somebody chose, a URI goes by its own, and a model by its place.
        """
        if isinstance(source, PyFuncModel):
            source = address(source)
        if not isinstance(source, str | Path):
            return cls(name or f"model {place}", source)
        uri = str(source)
        if not uri.startswith(SCHEME):
            return cls(name or uri.rstrip("/"), source)
        path = uri.removeprefix(SCHEME)
        version = _version_at(path)
        if version is None:
            return cls(name or path, source, _known(uri))
        return cls(name or f"{version.name}/{version.version}", source, _known(version.source), version)

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
            found.append(Candidate(called, f"{SCHEME}{called}", _known(version.source), version))
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


SHOWN: Final = 5  # names in a message


@dataclass(frozen=True, eq=False)
class Versions:
    """What there is to compare, oldest first.

    Attributes:
        compared: the versions that can be asked about the rows, with the model of each.
        newest: name of the last one that was asked for, whether or not it could be loaded.
        failed: name -> why a version is left out.
        notes: what else is worth knowing.
    """

    compared: Mapping[Candidate, ExplainedModel]
    newest: str
    failed: Mapping[str, str]
    notes: tuple[str, ...]


def open_versions(sources: object, rows: pd.DataFrame, versions: Sequence[int | str] | None = None) -> Versions:
    """Load the models to compare.

    Args:
        sources: the name of a registered model; a URI, folder, explained model or plain model; several of them; or
            name -> one of them.
        rows: (m, c) what they are to be asked about.
        versions: numbers or aliases of a registered model's versions; None: all of them.

    Raises:
        InputError: a name nobody has registered, or no version that can be compared.
    """
    candidates, notes = _candidates(sources, versions)
    loaded: dict[Candidate, object] = {}
    failed: dict[str, str] = {}
    for candidate in candidates:
        try:
            loaded[candidate] = _load(candidate.source)
        except Exception as error:  # noqa: BLE001  models of anybody: what they need may be missing here
            failed[candidate.name] = f"cannot be loaded ({getattr(error, 'message', None) or type(error).__name__})"
    first = next((model for model in loaded.values() if isinstance(model, ExplainedModel)), None)
    compared: dict[Candidate, ExplainedModel] = {}
    for candidate, model in loaded.items():
        try:
            explained = _explained(model, first)
            _check_columns(explained, rows)
            compared[candidate] = explained
        except InputError as error:
            failed[candidate.name] = error.message
    if not compared:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise InputError("versions", f"none can be compared ({reasons})", "mend one, or name others")
    return Versions(compared, candidates[-1].name, failed, (*notes, *_differences(list(compared.values()))))


def _candidates(sources: object, versions: Sequence[int | str] | None) -> tuple[list[Candidate], list[str]]:
    """Return what is to be compared, each under a name of its own, and notes on what is ignored."""
    if isinstance(sources, Mapping):
        named = [(str(name), source) for name, source in sources.items()]
    else:
        named = [("", source) for source in (sources if isinstance(sources, list | tuple) else [sources])]
    if versions is not None and not (len(named) == 1 and is_name(named[0][1])):
        raise InputError("versions", "are those of one registered model", "name that alone, or leave them out")
    found: list[Candidate] = []
    notes: list[str] = []
    for name, source in named:
        if is_name(source):
            candidates, ignored = candidates_of(str(source), versions)
            notes += ignored
        else:
            candidates = [Candidate.of(source, name, len(found) + 1)]
        for one in candidates:
            found.append(replace(one, name=_free(one.name, {other.name for other in found})))
    failed = [one for one in found if one.has_failed]
    notes += [f"{one.name} is ignored: its logged model is marked as FAILED" for one in failed]
    if len(failed) == len(found):
        raise InputError("versions", "there are none to compare", "; ".join(notes) or "name some")
    return [one for one in found if one not in failed], notes


def _free(name: str, taken: set[str]) -> str:
    return next(
        free for free in (name, *(f"{name} ({number})" for number in range(2, len(taken) + 3))) if free not in taken
    )


def _load(source: object) -> object:
    """Return an explained model, or the folder or object of a plain one."""
    if not isinstance(source, str | Path):
        return source
    folder = fetch(source)
    check_is_model(folder)
    return load_folder(folder) if OWN_FLAVOR in Model.load(str(folder)).flavors else folder


def _explained(model: object, first: ExplainedModel | None) -> ExplainedModel:
    """Return an explained model; a plain one is wrapped with the background and the policy of the first."""
    if isinstance(model, ExplainedModel):
        return model
    if first is None:
        fix = "pass an explained model as well, or wrap this one: mlflow_cf.wrap(model, data)"
        raise InputError("model", "is a plain model, and none beside it has a background to explain it with", fix)
    try:
        opened = open_native(model, rows=first.background)
    except InputError:
        raise
    except Exception as error:
        raise InputError("model", f"cannot be opened ({type(error).__name__})", "pass one that loads here") from error
    space, columns = first.space, [str(column) for column in opened.columns] or list(first.space.names)
    if lacking := [name for name in columns if name not in space.index]:
        fact = f"takes {_listed(lacking)}, which the background of the first explained model lacks"
        raise InputError("model", fact, "wrap it with its own training rows: mlflow_cf.wrap(model, data)")
    if columns != list(space.names):
        space = FeatureSpace(tuple(space[name] for name in columns))
    rows = first.background.loc[:, list(space.columns)]
    space, codes = with_levels_of(opened, space, rows), space.encode(rows)
    policy = first.policy.model_copy(update={"robust_to": (), "survival": None})  # other models are the first one's
    extra_models = ExtraModels.learn(policy, {}, space, codes)
    background = BackgroundRows(rows, first.labels, codes)
    kept = LearnedOnce(extra_models=extra_models, causal=first.bound_policy.learned)
    return ExplainedModel.build(opened, space, background, policy, first.explainer, kept)


def _check_columns(explained: ExplainedModel, rows: pd.DataFrame) -> None:
    if lacking := [str(column) for column in explained.space.columns if column not in rows.columns]:
        raise InputError("rows", f"{_listed(lacking)} is missing, which this model takes", "pass rows with all columns")


def _differences(compared: Sequence[ExplainedModel]) -> Iterator[str]:
    """Yield what makes figures of different versions less than comparable."""
    spaces = [set(one.space.names) for one in compared]
    shared = set.intersection(*spaces)
    if extra := sorted(set.union(*spaces) - shared):
        yield f"not all versions have the features {_listed(extra)}; under a version that lacks one, it stays as it is"
    targets: list[dict[str, Any]] = [one.policy.target.to_dict() for one in compared]
    if any(target != targets[0] for target in targets):
        yield f"the versions want different outcomes: {', '.join(map(str, targets))}"
    scales = [{name: (one.space[name].low, one.space[name].high) for name in shared} for one in compared]
    if any(scale != scales[0] for scale in scales):
        yield "distances are in each version's own units: their backgrounds have different ranges"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more
