"""Explainers by name: ours, and those of other packages through the entry point group ``mlflow_cf.explainers``."""

from __future__ import annotations

import dataclasses
from importlib.metadata import entry_points
from typing import Any

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.explainers import EXPLAINERS, Explainer

GROUP = "mlflow_cf.explainers"


def explainer_named(source: str | Explainer, path: str = "explainer") -> Explainer:
    """Return an explainer from its name (with default options) or as it is.

    Raises:
        InputError: an unknown name, or an object that is no explainer.
    """
    if isinstance(source, str):
        return _class(source, path)()
    if isinstance(source, type) or not isinstance(source, Explainer):
        raise InputError(path, f"{source!r} is not an explainer", "pass a name, or an object such as GeCo()")
    return source


def explainer_to_dict(explainer: Explainer) -> dict[str, Any]:
    """Return name and options as plain JSON values."""
    options: dict[str, Any] = dataclasses.asdict(explainer) if dataclasses.is_dataclass(explainer) else {}
    return {"name": explainer.name, "options": options}


def explainer_from_dict(data: dict[str, Any], path: str = "explainer") -> Explainer:
    """Rebuild an explainer from `explainer_to_dict`.

    Raises:
        InputError: an unknown name or option.
    """
    kind = _class(data["name"], path)
    known: list[str] = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for option in data["options"]:
        if option not in known:
            raise InputError(f"{path}.{option}", "not an option", did_you_mean(option, known, "options"))
    return kind(**data["options"])


def _class(name: str, path: str) -> type[Explainer]:
    if name in EXPLAINERS:
        return EXPLAINERS[name]
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name not in others:
        fix = did_you_mean(name, [*EXPLAINERS, *others], "explainers")
        raise InputError(path, f"no explainer is called {name!r}", fix)
    loaded: type[Explainer] = others[name].load()
    return loaded
