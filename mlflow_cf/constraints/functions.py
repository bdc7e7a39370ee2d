"""Python functions in place of PLAF texts of actions and relationships, and their placeholders when stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, SerializationInfo
from pydantic_core import PydanticCustomError

PythonFunction = Callable[..., Any]
NAMED: Final = "function"  # the one key of a placeholder


def placeholder(function: PythonFunction) -> dict[str, str]:
    """Return the placeholder of a function among plain values: its name."""
    known = getattr(function, "__qualname__", None)
    return {NAMED: known if isinstance(known, str) else type(function).__qualname__}


def named_functions(constraints: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of all placeholders of functions in constraints (plain values), by their paths."""
    return {path: holder[key][NAMED] for path, holder, key in places(constraints) if _is_name(holder[key])}


def fill(constraints: Mapping[str, Any], functions: Mapping[str, PythonFunction]) -> None:
    """Replace the placeholders in constraints (plain values) by functions, in place.

    Raises:
        ValueError: the placeholders have other paths than the functions.
    """
    named = [place for place in places(constraints) if _is_name(place[1][place[2]])]
    if {path for path, _, _ in named} != set(functions):
        raise ValueError("functions of other places")
    for path, holder, key in named:
        holder[key] = functions[path]


def places(constraints: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield every place that may have a function: its path, its container, and its key there."""
    for number, action in enumerate(constraints.get("actions") or ()):
        path = f"actions[{number}]"
        if action.get("effort") is not None:
            yield f"{path}.effort", action, "effort"
        yield from ((f"{path}.effects.{name}", action["effects"], name) for name in action.get("effects", ()))
        for key in ("before", "after"):
            yield from ((f"{path}.{key}[{at}]", action[key], at) for at in range(len(action.get(key, ()))))
    for number, edge in enumerate(constraints.get("relationships") or ()):
        if edge.get("factor") is not None:
            yield f"relationships[{number}].factor", edge, "factor"


def _is_name(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {NAMED} and isinstance(value[NAMED], str)


def _checked(value: object) -> object:
    if isinstance(value, str) or callable(value):
        return value
    if _is_name(value):
        raise PydanticCustomError("function", "Only names a function, pass the function itself or write PLAF text")
    raise PydanticCustomError("function", "Must be a PLAF text, or in Python a function")


def _plain(value: Any, info: SerializationInfo) -> Any:
    return placeholder(value) if info.mode == "json" and not isinstance(value, str) else value


TextOrFunction = Annotated[
    str | PythonFunction, PlainValidator(_checked, json_schema_input_type=str), PlainSerializer(_plain)
]
