"""Python functions where a text may stand: what users pass in memory, and how each is named where only texts can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, SerializationInfo
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from mlflow_cf.constraints.actions import Action, Relationship

PythonFunction = Callable[..., Any]
NAMED: Final = "function"  # the one key of what stands for a function among plain values


def placeholder(function: PythonFunction) -> dict[str, str]:
    """Return what stands for a function among plain values: its name, which nothing can be made of."""
    known = getattr(function, "__qualname__", None)
    return {NAMED: known if isinstance(known, str) else type(function).__qualname__}


def functions_in(actions: Sequence[Action], relationships: Sequence[Relationship] = ()) -> dict[str, PythonFunction]:
    """Return the functions of actions and relationships by their paths, such as ``actions[0].effort``."""
    plain = {"actions": [dict(action) for action in actions], "relationships": [dict(edge) for edge in relationships]}
    return {path: function for path, holder, key in _places(plain) if callable(function := holder[key])}


def named_functions(constraints: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the functions that constraints, as plain values, only name; by their paths."""
    return {path: holder[key][NAMED] for path, holder, key in _places(constraints) if _is_name(holder[key])}


def fill(constraints: Mapping[str, Any], functions: Mapping[str, PythonFunction]) -> None:
    """Put functions where constraints, as plain values, only name them.

    Raises:
        ValueError: these are other places than those of the functions.
    """
    places = [place for place in _places(constraints) if _is_name(place[1][place[2]])]
    if {path for path, _, _ in places} != set(functions):
        raise ValueError("functions of other places")
    for path, holder, key in places:
        holder[key] = functions[path]


def _places(constraints: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield where a function may stand: its path, what holds it, and its key there."""
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
