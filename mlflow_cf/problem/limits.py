"""What one request may ask for at most, and how large its options may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, StrictInt
from pydantic_core import PydanticCustomError

from mlflow_cf.validation import Number, UserModel, validated

Seconds = Annotated[Number, Field(gt=0)]
Count = Annotated[StrictInt, Field(ge=1)]
MOST_ANSWERS: Final = 90  # GeCo keeps 100 candidates unless told otherwise, and must have some to spare


def _few_enough(count: int) -> int:
    if count > MOST_ANSWERS:
        message = "at most {most}: GeCo chooses answers among the 100 candidates that it keeps"
        raise PydanticCustomError("count", message, {"most": MOST_ANSWERS})
    return count


class QueryLimits(UserModel):
    """How large the options of one request may be; checked before anything in them is read.

    Attributes:
        json_bytes: of their JSON text without spaces.
        values: texts, numbers, lists and objects in all.
        entries: of any one list or object: names, levels, ranges, groups, forbidden pairs, options of an explainer.
        rules: of ``constraints.rules``.
        depth: how many lists and objects stand inside of one another, the options themselves the first.
        text_length: characters of any one text but a rule.
        rule_length: characters of one rule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    json_bytes: Count = 65_536
    values: Count = 4_096
    entries: Count = 1_000
    rules: Count = 256
    depth: Count = 8
    text_length: Count = 1_024
    rule_length: Count = 2_048


class Limits(UserModel):
    """Most a request may ask for; also what it gets when it does not say.

    Attributes:
        count: most counterfactuals per row; 90 at most.
        time_limit_s: seconds for all explanations of a request together, when serving.
        row_time_limit_s: seconds per explained row of a longer table that is answered without a server.
        max_evaluations: rows scored per explained row.
        rows: most rows of a request to a server.
        explained_rows: most rows of a request that a server explains; all are predicted.
        query: how large the options of a request may be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[StrictInt, Field(ge=1), AfterValidator(_few_enough)] = 10
    time_limit_s: Seconds = 5.0
    row_time_limit_s: Seconds = 1.0
    max_evaluations: Count = 1_000_000
    rows: Count = 10_000
    explained_rows: Count = 1_000
    query: QueryLimits = QueryLimits()

    @classmethod
    def read(cls, source: Limits | Mapping[str, Any] | None) -> Limits:
        """Return limits from an object, a dict or None for the defaults.

        Raises:
            InputError: an unknown key or a value out of bounds.
        """
        if source is None or isinstance(source, Limits):
            return source or cls()
        return validated(cls, dict(source), "limits")
