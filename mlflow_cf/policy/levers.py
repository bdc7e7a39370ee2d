"""Sets of levers that a request asks about."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

MOST_NAMED: Final = 1_000  # sets, before they are compared with what one row can have searched
Some = TypeVar("Some", bound=tuple[object, ...])


def _some(given: Some) -> Some:
    if not given:
        raise PydanticCustomError("levers", "Names nothing; write lists of features, as [['income'], ['job', 'debts']]")
    return given


LeverSet = Annotated[tuple[StrictStr, ...], AfterValidator(_some)]
Named = Annotated[tuple[LeverSet, ...], AfterValidator(_some), Field(max_length=MOST_NAMED)]
# Sets of features by name, or a number: all sets of up to so many feature groups.
LeversAsked = Annotated[StrictInt, Field(ge=1)] | Named
