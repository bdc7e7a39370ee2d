"""Explainers by name: ours, and those of other packages through the entry point group ``mlflow_cf.explainers``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from mlflow_cf.errors import InputError, InputErrors, did_you_mean
from mlflow_cf.explainers import EXPLAINERS, AnyExplainer, Explainer, Learner
from mlflow_cf.policy import NamedExplainer
from mlflow_cf.validation import input_errors, validated

GROUP = "mlflow_cf.explainers"

ExplainerSource = str | Mapping[str, Any] | Explainer | Learner


def explainer_of(source: ExplainerSource, path: str = "explainer") -> AnyExplainer:
    """Return an explainer from its name, from a dict of its name and options, or as it is.

    Raises:
        InputError: an unknown name or option, or an object that is no explainer.
    """
    if isinstance(source, str | Mapping):
        data = {"name": source} if isinstance(source, str) else dict(source)
        named = validated(NamedExplainer, data, path)
        return _with_options(_class(named.name, path), named.options, path)
    if isinstance(source, type) or not isinstance(source, Explainer | Learner):
        raise InputError(path, f"{source!r} is not an explainer", "pass a name, or an object such as GeCo()")
    return source


def asked_explainer(asked: NamedExplainer, own: AnyExplainer) -> AnyExplainer:
    """Return the explainer that a request asks for.

    Args:
        asked: its name, and options that the explainer lets requests set.
        own: the model's own explainer, which is meant where the request gives its name; options go on top of its own.

    Raises:
        InputError: an unknown name, or options that requests may not set, or not to this; all of them at once.
    """
    base = own if asked.name == own.name else explainer_of(asked.name)
    if not asked.options:
        return base
    allowed = _by_request(type(base))
    read, errors = {}, []
    for option, value in asked.options.items():
        path = f"explainer.options.{option}"
        if option not in allowed:
            fix = did_you_mean(option, allowed, "options") if allowed else "log the model with an explainer that has it"
            errors.append(InputError(path, f"not an option of {base.name} that a request may set", fix))
            continue
        try:
            read[option] = TypeAdapter(allowed[option]).validate_python(value)
        except ValidationError as error:
            errors.append(input_errors(error, path, BaseModel, value))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    own_options = {field.name: getattr(base, field.name) for field in _fields(type(base))}
    return _with_options(type(base), {**own_options, **read}, "explainer")


def explainer_to_dict(explainer: AnyExplainer) -> dict[str, Any]:
    """Return name and options as plain JSON values."""
    options: dict[str, Any] = dataclasses.asdict(explainer) if dataclasses.is_dataclass(explainer) else {}
    return {"name": explainer.name, "options": options}


def options_schema() -> list[dict[str, Any]]:
    """Return the JSON schema of the options that requests may set, as one condition per explainer."""
    kinds = {name: _class(name, "explainer") for name in sorted({*EXPLAINERS, *_others()})}
    return [
        {
            "if": {"properties": {"name": {"const": name}}},
            "then": {
                "properties": {
                    "options": {
                        "properties": {
                            option: TypeAdapter(kept).json_schema() for option, kept in _by_request(kind).items()
                        },
                        "additionalProperties": False,
                    }
                }
            },
        }
        for name, kind in kinds.items()
    ]


def _with_options(kind: type[AnyExplainer], options: Mapping[str, Any], path: str) -> AnyExplainer:
    known = [field.name for field in _fields(kind)]
    for option in options:
        if option not in known:
            raise InputError(f"{path}.options.{option}", "not an option", did_you_mean(option, known, "options"))
    try:
        return kind(**options)
    except InputError as error:  # an object's own errors say explainer.q: it may have been built in Python
        where = error.path.removeprefix("explainer.")
        raise InputError(f"{path}.options.{where}", error.fact, error.fix) from None


def _fields(kind: type[AnyExplainer]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _by_request(kind: type[AnyExplainer]) -> Mapping[str, Any]:
    allowed: Mapping[str, Any] = getattr(kind, "by_request", {})
    return allowed


def _class(name: str, path: str) -> type[AnyExplainer]:
    if name in EXPLAINERS:
        return EXPLAINERS[name]
    others = _others()
    if name not in others:
        fix = did_you_mean(name, [*EXPLAINERS, *others], "explainers")
        raise InputError(path, f"no explainer is called {name!r}", fix)
    loaded: type[AnyExplainer] = others[name].load()
    return loaded


def _others() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}
