"""The distance between rows, as owners write it: weights of how many features change, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mlflow_cf.errors import InputError
from mlflow_cf.validation import UserModel, validated

Scale = Literal["range", "mad", "percentile"]


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Distance(UserModel):
    """``l0 * share of changed features + l1 * mean change + linf * largest change``, with weights that add up to 1.

    Attributes:
        l0, l1, linf: the weights of the three parts.
        scale: numbers are divided by their range over the background, or by their median absolute deviation; or a
            change is the share of background rows between the two values (``percentile``; the percentile shift of
            Ustun, Spangher and Liu 2019). Rows that have one of the two values count half; between observed values the
            share grows in proportion, and beyond them as if the rows were spread evenly over the range.
        weights: feature -> weight of its change (default 1).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    l0: Weight = 0.5
    l1: Weight = 0.5
    linf: Weight = 0.0
    scale: Scale = "range"
    weights: Mapping[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(default_factory=dict)

    POSITIONAL: ClassVar[tuple[str, ...]] = ("l0", "l1", "linf")

    if TYPE_CHECKING:

        def __init__(self, l0: float = 0.5, l1: float = 0.5, linf: float = 0.0, **options: Any) -> None: ...

    @model_validator(mode="after")
    def _adds_up(self) -> Distance:
        if abs(self.l0 + self.l1 + self.linf - 1) > 1e-9:
            raise PydanticCustomError("distance", "l0 + l1 + linf must be 1")
        return self

    @classmethod
    def read(cls, source: Distance | tuple[float, float, float] | Mapping[str, Any]) -> Distance:
        """Return a distance from a `source`: an object, its three weights (l0, l1, linf), or a dict.

        Raises:
            InputError: weights that are negative or do not add up to 1, or an unknown key.
        """
        if isinstance(source, Distance):
            return source
        if isinstance(source, Mapping):
            data = dict(source)
        elif isinstance(source, tuple | list) and len(source) == 3:
            data = dict(zip(("l0", "l1", "linf"), source, strict=True))
        else:
            raise InputError("distance", f"{source!r} is not a distance", "pass (l0, l1, linf), such as (0.5, 0.5, 0)")
        return validated(cls, data, "distance")
