"""Limits on what one request may ask for, and on the size of its options.

Options are measured without reading more of them than the policy lets pass. Also the variety that is asked for: how
several answers for one row must differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, StrictInt
from pydantic_core import PydanticCustomError

from mlflow_cf.errors import InputError
from mlflow_cf.features import Feature, Floats
from mlflow_cf.validation import Number, UserModel

Seconds = Annotated[Number, Field(gt=0)]
Count = Annotated[StrictInt, Field(ge=1)]
MOST_ANSWERS: Final = 90  # GeCo keeps 100 candidates by default, and must have some to spare


def _few_enough(count: int) -> int:
    if count > MOST_ANSWERS:
        message = "at most {most}: GeCo chooses answers among the 100 candidates that it keeps"
        raise PydanticCustomError("count", message, {"most": MOST_ANSWERS})
    return count


class QueryLimits(UserModel):
    """Limits on the size of the options of one request; checked before anything in them is read.

    Attributes:
        json_bytes: bytes of their JSON text without spaces.
        values: texts, numbers, lists and objects in all.
        entries: of any one list or object: names, levels, ranges, groups, forbidden pairs, options of an explainer.
        rules: entries of ``constraints.rules``.
        depth: how deep lists and objects are nested; the options themselves count as one.
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
    """Upper limits on what a request may ask for; also the defaults of options that it leaves out.

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


WHOLE: Final = "counterfactual"  # the path of the options as a whole
RULES: Final = ("constraints", "rules")
LONGEST_NAME: Final = 60  # characters of a key in a path
DIGITS_PER_BIT: Final = 0.30103


class _Place(NamedTuple):
    """The place of a value: its key or position, and the place of the list or object that has it."""

    outer: _Place | None
    key: object
    depth: int

    @property
    def keys(self) -> tuple[object, ...]:
        """All keys from the outermost to its own."""
        return () if self.outer is None else (*self.outer.keys, self.key)

    @property
    def path(self) -> str:
        """The place as text, such as ``constraints.groups[0]``."""
        text = ""
        for key in self.keys:
            name = f"[{key}]" if isinstance(key, int) else str(key)
            text += (name if isinstance(key, int) or not text else f".{name}")[:LONGEST_NAME]
        return text or WHOLE


def check_extent(options: Mapping[str, object], limits: QueryLimits) -> None:
    """Refuse options that are larger than `limits`; reading ends at the first value that is too much.

    Raises:
        InputError: which limit, at which path.
    """
    waiting: list[tuple[object, _Place]] = [(options, _Place(None, "", 1))]
    values, size = 1, 0
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str | bytes):
            _check_text(value, place, limits)
        elif isinstance(value, Collection):
            _check_collection(value, place, limits)
            values += len(value)
            _check(values, limits.values, "values in all", WHOLE)
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting.extend((entry, _Place(place, key, place.depth + 1)) for key, entry in pairs)
            size += max(len(value) - 1, 0)
            if isinstance(value, Mapping):
                for key in value:
                    if isinstance(key, str) and len(key) > limits.text_length:
                        _check(len(key), limits.text_length, "characters", _Place(place, key, 0).path)
                    size += _json_bytes(key) + 1
        size += _json_bytes(value)
        _check(size, limits.json_bytes, "bytes of JSON or more", WHOLE)


def _check_collection(value: Collection[object], place: _Place, limits: QueryLimits) -> None:
    if place.depth > limits.depth:
        _check(place.depth, limits.depth, "lists and objects inside of one another", place.path)
    if place.depth == len(RULES) + 1 and place.keys == RULES:
        _check(len(value), limits.rules, "rules", place.path)
    elif len(value) > limits.entries:
        _check(len(value), limits.entries, "entries", place.path)


def _check_text(text: str | bytes, place: _Place, limits: QueryLimits) -> None:
    if len(text) <= min(limits.text_length, limits.rule_length):
        return
    rule = place.depth == len(RULES) + 2 and place.keys[:-1] == RULES
    _check(len(text), limits.rule_length if rule else limits.text_length, "characters", place.path)


def _check(found: int, most: int, noun: str, path: str) -> None:
    if found > most:
        raise InputError(path, f"{found:,} {noun} are more than the policy's {most:,}", "ask for less")


def _json_bytes(value: object) -> int:
    """Return the bytes of a value in JSON, without its entries: its text with quotes, or brackets and separators."""
    match value:
        case str():
            return 2 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
        case bool() | None:
            return 5 if value is False else 4
        case int():
            return len(str(value)) if abs(value) < 1 << 64 else int(value.bit_length() * DIGITS_PER_BIT) + 1
        case float():
            return len(repr(value))
    return 2


Diversity = Literal["sets", "near"]
LeastDifference = Annotated[Number, Field(ge=0, le=1)]
LEAST_DIFFERENCE: Final = 0.05  # of a number's range


class Variety(NamedTuple):
    """How several answers for one row differ.

    Attributes:
        diversity: ``sets``: the best of every set of changed features first; ``near``: the nearest ones.
        min_difference: two answers that change the same features, and all of the nearest ones, differ by a level or in
            a number by at least this share of its range.
    """

    diversity: Diversity = "sets"
    min_difference: float = LEAST_DIFFERENCE

    @property
    def near(self) -> bool:
        """Whether the nearest answers are wanted, whatever they change."""
        return self.diversity == "near"


USUAL: Final = Variety()


def ranges(features: Sequence[Feature]) -> Floats:
    """Return the range (d,) of every number; 0 for levels."""
    return np.array([feature.high - feature.low if feature.numeric else 0.0 for feature in features])
