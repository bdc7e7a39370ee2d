"""Other models beside the one that is explained, such as its versions: their names, and how they see its features."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pandas as pd
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Table
from mlflow_cf.model.endpoint import as_model
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch, inner_of, open_folder, open_native
from mlflow_cf.model.judge import Compile, OpenModel

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
KEYS: Final = frozenset({"model", "name", "required"})
WHERE: Final = "robust_to"
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Version:
    """A model under which answers must hold, as its user named it.

    Attributes:
        name: unique among the others; required: whether every answer must.
        model: a fitted model, an MLflow model URI or folder, or a loaded pyfunc.
    """

    name: str
    model: object
    required: bool = True


def read_versions(sources: Sequence[object]) -> tuple[Version, ...]:
    """Return models with their names: as given, or the last part of their address (``v2`` of ``models:/credit/2``).

    Raises:
        InputError: they are no list, an unknown key, or a name that is malformed or that two of them have.
    """
    found: dict[str, Version] = {}
    for at, source in enumerate(listed(sources)):
        version = _read(source, f"{WHERE}[{at}]", at)
        known = {name.casefold() for name in found}
        if version.name.casefold() in known and not isinstance(source, Mapping):
            version = replace(version, name=f"{version.name}_{at + 1}")
        if version.name.casefold() in known:
            fact = f"{version.name!r} is the name of two models"
            raise InputError(f"{WHERE}[{at}]", fact, 'name each: {"model": ..., "name": ...}')
        found[version.name] = version
    return tuple(found.values())


def listed(sources: object) -> Sequence[object]:
    """Return several models as they are.

    Raises:
        InputError: they are no list.
    """
    if isinstance(sources, str | Path) or not isinstance(sources, Sequence):
        raise InputError(WHERE, f"a {type(sources).__name__} is not a list", "pass a list of models or model URIs")
    return sources


def _read(source: object, path: str, at: int) -> Version:
    given: Mapping[str, Any] = source if isinstance(source, Mapping) else {"model": source}
    if "model" not in given or set(given) - KEYS:
        fact = f"has the keys {sorted(map(str, given))}"
        raise InputError(path, fact, 'pass a model, or {"model": ..., "name": ..., "required": ...}')
    name, required = given.get("name") or _name_of(given["model"], at), given.get("required", True)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{path}.name", f"{str(name)[:64]!r} is no name", "use up to 64 letters, digits, - and _")
    if not isinstance(required, bool):
        raise InputError(f"{path}.required", f"must be true or false, got {required!r}"[:200], "leave it out for true")
    return Version(name, given["model"], required)


def _name_of(model: object, at: int) -> str:
    """Return the last part of an address; of a model without one, its place among the others."""
    tail = re.split(r"[/\\@]", str(model).rstrip("/\\"))[-1] if isinstance(model, str | Path) else ""
    tail = re.sub(r"[^A-Za-z0-9_-]+", "-", tail).strip("-_")[:48]
    return f"v{tail}" if tail.isdigit() else tail or f"model_{at + 1}"


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let what is wrong with a model be told by its name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{WHERE}.{name}", f"{error.path}: {error.fact}", error.fix) from error


def open_versions(versions: Sequence[Version], rows: Table | None, output: str | None = None) -> dict[str, OpenModel]:
    """Open models that must be able to answer some raw rows; by their names.

    Raises:
        InputError: one of them cannot be opened, or cannot answer.
    """
    found = {}
    for version in versions:
        with named(version.name):
            found[version.name] = opened(version, rows, output)
    return found


def opened(version: Version, rows: Table | None, output: str | None) -> OpenModel:
    """Open one model; of an explained one, the model inside.

    Raises:
        InputError: it cannot be opened, or cannot answer some raw rows.
    """
    model = as_model(version.model)
    if isinstance(model, str | Path):
        return open_folder(inner_of(fetch(model)), output=output, rows=rows)
    if isinstance(model, PyFuncModel) and OWN_FLAVOR in model.metadata.flavors:
        model = model.get_raw_model()
    inside = getattr(model, "model", None)
    return inside if isinstance(inside, OpenModel) else open_native(model, output=output, rows=rows)


def shown_features(model: OpenModel, space: FeatureSpace, name: str) -> OpenModel:
    """Return a model that picks its own columns from rows of `space`, in its own order.

    Raises:
        InputError: it needs a column that the explained model does not take.
    """
    columns = list(model.columns)
    missing = [column for column in columns if column not in space.columns]
    if missing:
        fact = f"needs the column {str(missing[0])!r}, which the explained model does not take"
        raise InputError(f"{WHERE}.{name}", fact, "leave it out, or pass a version with the same features")
    if not columns or columns == list(space.columns):
        return model

    def picked(ask: Callable[[pd.DataFrame], Answer]) -> Callable[[pd.DataFrame], Answer]:
        return lambda rows: ask(rows[columns])

    return replace(
        model,
        decide=picked(model.decide),
        score=None if model.score is None else picked(model.score),
        both=None if model.both is None else picked(model.both),
        compile=None if model.compile is None else _compiling(model.compile, columns),
    )


def _compiling(compile_model: Compile, columns: Sequence[object]) -> Compile:
    return lambda space, rows: compile_model(space, rows[list(columns)])
