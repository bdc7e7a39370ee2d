"""Constraints as users write them: Python objects, dicts, YAML or JSON.

Among them causal equations: a number follows other features by a learned, fitted or given function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mlflow_cf.constraints.actions import MAX_ACTIONS, MAX_RELATIONSHIPS, Action, Relationship, listed
from mlflow_cf.errors import InputError
from mlflow_cf.plaf import is_program, parse_program
from mlflow_cf.validation import Number, UserModel, validated
from mlflow_cf.words.description import constraint_blocks

# FailFast: of a list of nothing but mistakes the first one tells enough, and thousands take long to tell
Names = Annotated[tuple[StrictStr, ...], FailFast()]
Learnable = Literal["linear", "tree", "mlp"]
LEARNABLE: Final = get_args(Learnable)
MAX_POINTS: Final = 1_000
MAX_LAYERS: Final = 16


class Stored(BaseModel):
    """The mark of a function whose arrays the artifact stores beside the policy.

    Attributes:
        stored: what the user passed, such as the class of an estimator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    stored: StrictStr


def _as_lists(value: Any) -> Any:
    """Return an array, or a list of arrays, as nested lists."""
    if isinstance(value, list | tuple):
        return [_as_lists(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


Vector = Annotated[tuple[Number, ...], FailFast(), Field(min_length=1)]
Matrix = Annotated[tuple[Vector, ...], FailFast(), Field(min_length=1)]


class Network(BaseModel):
    """A network of layers with rectifiers between them, as plain arrays.

    Attributes:
        weights: per layer (inputs, outputs); biases: per layer (outputs,). The last one has one output, in the unit of
            the child.
        inputs: what the first layer takes, in order: a parent, as it is (of a date the days since 1970, of a boolean 1
            for true), or ``[parent, level]``, which is 1 where the row has this level; left out: the parents.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: Annotated[
        tuple[Matrix, ...], FailFast(), Field(min_length=1, max_length=MAX_LAYERS), BeforeValidator(_as_lists)
    ]
    biases: Annotated[
        tuple[Vector, ...], FailFast(), Field(min_length=1, max_length=MAX_LAYERS), BeforeValidator(_as_lists)
    ]
    inputs: tuple[StrictStr | tuple[StrictStr, StrictStr], ...] | None = None


Point = tuple[Number | StrictStr, Number]
Points = Annotated[tuple[Point, ...], Field(min_length=2, max_length=MAX_POINTS)]
Coefficient = Number | Mapping[StrictStr, Number] | Points


def _model(value: object) -> object:
    """Return the name of a function to learn, an estimator, or the mark of a stored function."""
    if isinstance(value, Mapping) and set(value) == {"stored"} and isinstance(value["stored"], str):
        return Stored(stored=value["stored"])
    named = isinstance(value, str) and value in LEARNABLE
    predicts = callable(getattr(value, "predict", None)) and not isinstance(value, type)
    if named or isinstance(value, Stored) or predicts:
        return value
    raise PydanticCustomError("model", "Input should be 'linear', 'tree' or 'mlp'")


def _plain(value: Any, info: SerializationInfo) -> Any:
    if value is None or isinstance(value, str) or info.mode != "json":
        return value
    return {"stored": value.stored if isinstance(value, Stored) else type(value).__name__}


# an estimator is `Any`: scikit-learn carries no types
Source = Annotated[
    Any, PlainValidator(_model), PlainSerializer(_plain), WithJsonSchema({"enum": list(LEARNABLE), "type": "string"})
]


class CausalEquation(BaseModel):
    """A causal equation: a number goes up and down by as much as a function of its parents does.

    Exactly one of `model`, `coefficients`, `network` and `formula` says which function.

    Attributes:
        child: the number; parents: the features it follows.
        model: what the function is learned as, from the background; or, in Python, a fitted regressor of the parents
            that can be opened, which is kept as arrays.
        coefficients: per parent, whose parts add up: of a number (date, boolean) what one more (day, true) adds, or a
            table of points ``[value, what it adds]``, with straight lines between and the same as at the end beyond;
            of other features what each level adds, 0 for a level that is not named.
        intercept: of coefficients; it makes no difference to changes.
        network: layers with rectifiers between them.
        formula: PLAF text over ``x.parent``, such as ``12 + 0.004 * max(x.amount, 1000)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    child: StrictStr
    parents: Names
    model: Source | None = None
    coefficients: Mapping[StrictStr, Coefficient] | None = None
    intercept: Number = 0.0
    network: Network | None = None
    formula: StrictStr | None = None


MAX_RULES = 256
MAX_EQUATIONS = 32
LevelValue = StrictBool | StrictStr | Number
Bound = Number | StrictStr | None


class Relative(BaseModel):
    """How far a number may move from the query row's own value, in its unit or in percent; None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    up: Annotated[Number, Field(ge=0)] | None = None
    down: Annotated[Number, Field(ge=0)] | None = None
    up_percent: Annotated[Number, Field(ge=0)] | None = None
    down_percent: Annotated[Number, Field(ge=0)] | None = None


class Constraints(UserModel):
    """What a counterfactual must respect; all keys together, each compiled to rules.

    Attributes:
        immutable: features that keep the query row's value.
        increasing, decreasing: features that may only grow, or only shrink (numbers and ordinals).
        ranges: feature -> (low, high), inclusive; None leaves an end open; ordinals take their levels.
        relative: feature -> limits relative to the query row's own value.
        levels: feature -> the values it may take.
        forbidden: feature -> transitions (from, to) that are not allowed.
        groups: features that change together and only to combinations the background has.
        max_changes: largest number of changed groups (a feature in no group counts as one).
        rules: PLAF rules over several features, such as ``IF x_cf.degree > x.degree THEN x_cf.age >= x.age + 4``.
        causal: numbers that follow other features, and only these.
        actions: what can be done, each once; relationships: which features make it cheaper. They say nothing about
            which rows are counterfactuals: they make plans of them. In a request: those of the policy's actions that
            remain, by name and feature; it may narrow them, add conditions and raise efforts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    immutable: Names = ()
    increasing: Names = ()
    decreasing: Names = ()
    ranges: Mapping[StrictStr, tuple[Bound, Bound]] = Field(default_factory=dict)
    relative: Mapping[StrictStr, Relative] = Field(default_factory=dict)
    levels: Mapping[StrictStr, Annotated[tuple[LevelValue, ...], FailFast()]] = Field(default_factory=dict)
    forbidden: Mapping[StrictStr, Annotated[tuple[tuple[LevelValue, LevelValue], ...], FailFast()]] = Field(
        default_factory=dict
    )
    groups: Annotated[tuple[Names, ...], FailFast()] = ()
    max_changes: Annotated[StrictInt, Field(ge=1)] | None = None
    rules: tuple[StrictStr, ...] = Field(default=(), max_length=MAX_RULES)
    causal: Annotated[tuple[CausalEquation, ...], FailFast()] = Field(default=(), max_length=MAX_EQUATIONS)
    actions: Annotated[tuple[Action, ...], FailFast()] = Field(default=(), max_length=MAX_ACTIONS)
    relationships: Annotated[tuple[Relationship, ...], FailFast()] = Field(default=(), max_length=MAX_RELATIONSHIPS)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, data: Any) -> Any:
        """Let a null key count as left out, as it does among the options of a request."""
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    @classmethod
    def read(cls, source: ConstraintSource, path: str = "constraints") -> Constraints:
        """Return constraints from a `source`: an object, a dict, a YAML or JSON file, PLAF text (or file), or None.

        None stands for no constraints. `path` is what errors call the place of the source.

        Raises:
            InputError: no such source, an unknown key or a value of the wrong form; every error names its path.
        """
        if source is None:
            return cls()
        if isinstance(source, Constraints):
            return source
        data = dict(source) if isinstance(source, Mapping) else _read_text(source, path)
        if isinstance(edges := data.get("relationships"), Mapping):
            data["relationships"] = listed(edges, f"{path}.relationships")
        return validated(cls, data, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that are set, as plain JSON values; of a Python function its name alone."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)

    def _repr_html_(self) -> str:
        """Return a line per key for notebooks."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        blocks = constraint_blocks(self.to_dict())
        return cards.page(cards.facts(blocks.items()) if blocks else cards.told("no constraints"))


ConstraintSource = Constraints | Mapping[str, Any] | str | Path | None


def _read_text(source: object, path: str) -> dict[str, Any]:
    """Return the constraints of PLAF text, or of a file of PLAF, YAML or JSON."""
    fix = "pass a dict, the path of a YAML or JSON file, or statements that start with PLAF or GROUP"
    if not isinstance(source, str | PathLike):
        raise InputError(path, f"{source!r:.60} names no constraints", fix)
    if isinstance(source, str) and is_program(source):
        return _from_plaf(source, path)
    file = Path(source)
    try:
        known = file.is_file()
    except OSError:  # text that is no name of a file at all, such as one that is too long
        known = False
    if not known:
        raise InputError(path, f"no file at {str(file)[:60]!r}", fix)
    text = file.read_text(encoding="utf-8")
    return _from_plaf(text, path) if file.suffix == ".plaf" else _from_file(file, text, path)


def _from_plaf(text: str, path: str) -> dict[str, Any]:
    groups, rules = parse_program(text, path)
    return {"groups": groups, "rules": tuple(map(str, rules))}


def _from_file(file: Path, text: str, path: str) -> dict[str, Any]:
    json_text = file.suffix == ".json"
    try:
        data = json.loads(text) if json_text else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        fact = f"{file.name} is not valid {'JSON' if json_text else 'YAML'}"
        raise InputError(path, fact, str(error).replace("\n", " ")) from None
    if not isinstance(data, dict | None):
        raise InputError(path, f"{file.name} holds a {type(data).__name__}", "write one mapping of constraint keys")
    return data or {}
