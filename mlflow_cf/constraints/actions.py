"""Actions that a person can take, and relationships that make them cheaper, as users write them.

Python functions may stand in place of PLAF texts; placeholders are stored for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    StrictBool,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mlflow_cf.errors import InputError
from mlflow_cf.validation import Number, UserModel, validated

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


MAX_ACTIONS = 64
MAX_RELATIONSHIPS = 256
Share = Annotated[Number, Field(ge=0, le=1)]


class Action(UserModel):
    """A declared action: it changes one feature, perhaps with effects on others, and can be taken once.

    All texts are PLAF, with ``abs``, ``min``, ``max``, ``floor`` and ``exp``; in them ``x`` is the state before the
    step and ``x_cf`` the state after it. In Python any of them can be a function instead, of states as dicts of plain
    values by feature (None: missing; dates as ISO texts). It is called state by state, and must give the same answer
    for the same states; where it raises, or returns nothing of the wanted kind, the step cannot be done, and that is
    logged once with the type of the error. To be stored, a function needs ``allow_functions=True``.

    Attributes:
        name: by which plans name it.
        feature: the feature that it changes.
        kind: whether a value v is added to the feature (``change``), set (``set``), or chosen among `levels`
            (``choose``).
        low, high: the least and the largest v; None leaves it open, which a search does not accept.
        levels: those to choose from; one alone is a fixed outcome.
        effects: other feature -> what it becomes, in this order; each sees what comes before it. As a function:
            ``(before, after) -> value``.
        effort: what the step costs, 0 or more; None: the feature's change as a share of its range. As a function:
            ``(before, after) -> number``.
        before: conditions on the state before the step, or functions ``(state) -> bool``; after: on both states, or
            functions ``(before, after) -> bool``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[StrictStr, Field(min_length=1, max_length=200)]
    feature: StrictStr
    kind: Literal["change", "set", "choose"] = "change"
    low: Number | StrictStr | None = None
    high: Number | StrictStr | None = None
    levels: tuple[StrictBool | StrictStr | Number, ...] = ()
    effects: Mapping[StrictStr, TextOrFunction] = Field(default_factory=dict)
    effort: TextOrFunction | None = None
    before: tuple[TextOrFunction, ...] = ()
    after: tuple[TextOrFunction, ...] = ()

    @model_validator(mode="after")
    def _of_its_kind(self) -> Action:
        if self.kind == "choose" and not self.levels:
            raise PydanticCustomError("action", "An action that chooses needs levels")
        if self.kind == "choose" and (self.low is not None or self.high is not None):
            raise PydanticCustomError("action", "low and high are of numbers, and this action chooses levels")
        if self.kind != "choose" and self.levels:
            raise PydanticCustomError("action", "levels are for kind: choose")
        return self


class Relationship(UserModel):
    """A relationship: the state of one feature makes actions on another one cheaper.

    Attributes:
        source: the feature that helps (the key ``from``); to: the feature whose actions become cheaper.
        factor: PLAF text of the share of the effort that is left; ``x`` is the state before the step. In Python it can
            be a function ``(state) -> share``, as in actions. It counts as 0 or 1 beyond these, and as 1 where it is
            undefined.
        cases: instead of it, conditions with a share each, of which the first that holds counts; otherwise: where none
            does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    source: StrictStr = Field(alias="from")
    to: StrictStr
    factor: TextOrFunction | None = None
    cases: tuple[tuple[StrictStr, Share], ...] = ()
    otherwise: Share = 1.0

    @model_validator(mode="after")
    def _one_form(self) -> Relationship:
        if (self.factor is None) == (not self.cases):
            raise PydanticCustomError("relationship", "A relationship has either a factor or cases")
        return self


ActionSource = Iterable[Action | Mapping[str, Any]]
RelationshipSource = Iterable[Relationship | Mapping[str, Any]] | Mapping[tuple[str, str], TextOrFunction]


class _Declared(BaseModel):
    actions: tuple[Action, ...] = Field(default=(), max_length=MAX_ACTIONS)
    relationships: tuple[Relationship, ...] = Field(default=(), max_length=MAX_RELATIONSHIPS)


def read_actions(source: ActionSource) -> tuple[Action, ...]:
    """Return actions from objects or dicts.

    Raises:
        InputError: an unknown key or a value of the wrong form; every error names its path.
    """
    return validated(_Declared, {"actions": tuple(source)}, "").actions


def read_relationships(source: RelationshipSource) -> tuple[Relationship, ...]:
    """Return relationships from objects, dicts, or a mapping of (from, to) to a factor.

    Raises:
        InputError: as for actions.
    """
    several = listed(source, "relationships") if isinstance(source, Mapping) else tuple(source)
    return validated(_Declared, {"relationships": several}, "").relationships


def listed(source: Mapping[Any, Any], path: str) -> tuple[dict[str, Any], ...]:
    """Return a mapping of (from, to) to a factor as a list of relationships.

    Raises:
        InputError: a key is no pair.
    """
    for pair in source:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise InputError(path, f"{str(pair)[:60]!r} is no pair (from, to)", "write a list of objects")
    return tuple({"from": of, "to": to, "factor": factor} for (of, to), factor in source.items())


def functions_in(actions: Sequence[Action], relationships: Sequence[Relationship] = ()) -> dict[str, PythonFunction]:
    """Return the functions of actions and relationships by their paths, such as ``actions[0].effort``."""
    plain = {"actions": [dict(action) for action in actions], "relationships": [dict(edge) for edge in relationships]}
    return {path: function for path, holder, key in places(plain) if callable(function := holder[key])}
