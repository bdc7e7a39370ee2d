"""Sets of levers that a request asks about."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StrictInt, StrictStr

MOST_NAMED: Final = 1_000  # sets, before they are compared with what one row can have searched
LeverSet = Annotated[tuple[StrictStr, ...], Field(min_length=1)]
Named = Annotated[tuple[LeverSet, ...], Field(min_length=1, max_length=MOST_NAMED)]
# Sets of features by name, or a number: all sets of up to so many feature groups.
LeversAsked = Annotated[StrictInt, Field(ge=1)] | Named
