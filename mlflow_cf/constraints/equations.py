"""Causal equations as users write them: a number follows other features by a learned, fitted or given function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    StrictStr,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from mlflow_cf.validation import Number

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
