"""Constraints that the names of columns suggest: what a person cannot or should not be asked to change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from mlflow_cf.suggest.columns import Column, Sample
from mlflow_cf.suggest.result import Suggestion

_PROTECTED: Final = "names a trait that law protects in many countries"
_ORIGIN: Final = "names where a person comes from, which nobody can change"
_FAMILY: Final = "names a family status: no decision should ask for another one"
IMMUTABLE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        [
            "sex",
            "gender",
            "male",
            "female",
            "race",
            "racial",
            "ethnic",
            "ethnicity",
            "religion",
            "religious",
            "faith",
            "caste",
            "disability",
            "disabled",
            "handicap",
            "orientation",
            "pregnant",
            "pregnancy",
            "genetic",
            "indigenous",
            "minority",
        ],
        _PROTECTED,
    ),
    **dict.fromkeys(
        [
            "nationality",
            "native",
            "foreign",
            "foreigner",
            "citizenship",
            "immigrant",
            "immigration",
            "birth",
            "birthplace",
            "birthday",
            "birthdate",
            "born",
            "dob",
            "ancestry",
            "origin",
        ],
        _ORIGIN,
    ),
    **dict.fromkeys(
        [
            "marital",
            "married",
            "marriage",
            "spouse",
            "relationship",
            "personal_status",
            "widowed",
            "divorced",
            "household_role",
        ],
        _FAMILY,
    ),
}
_TIME: Final = "passes with time alone and never goes back"
_PAST: Final = "counts what has happened, which cannot be undone"
_TAUGHT: Final = "is a level of education, which is not lost again"
GROWING: Final[Mapping[str, str]] = {
    **dict.fromkeys(["age", "aged", "tenure", "seniority", "experience", "since"], _TIME),
    **dict.fromkeys(["history", "ever", "prior", "priors"], _PAST),
    **dict.fromkeys(["education", "schooling", "degree"], _TAUGHT),
}
PERHAPS_GROWING: Final[Mapping[str, str]] = {
    **dict.fromkeys(["years", "year", "yrs"], _TIME),
    **dict.fromkeys(["total", "count", "counts", "cumulative", "lifetime", "previous", "past"], _PAST),
}
AGGREGATES: Final = frozenset(
    {"avg", "average", "mean", "median", "rate", "ratio", "share", "percent", "last", "recent"}
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a column's name in lower case: of ``MostRecentBill`` and ``most_recent_bill`` the same."""
    return tuple(word.lower() for word in _WORD.findall(name))


def by_name(sample: Sample) -> Iterator[Suggestion]:
    """Yield which columns their names say are immutable or only grow."""
    for column in sample.columns:
        words = words_of(column.name)
        pairs = tuple(map("_".join, pairwise(words)))
        traits = [word.removeprefix("is") for word in (*words, *pairs)]
        trait = next((word for word in traits if word in IMMUTABLE), None)
        if trait is not None:
            present = int((~column.missing).sum())
            reason = f"{trait!r} in its name {IMMUTABLE[trait]}"
            yield Suggestion("immutable", (column.name,), {"immutable": [column.name]}, present, 0, reason, active=True)
        elif (column.numeric and column.kind != "date") or column.kind == "ordinal":
            yield from _growing(column, words)


def _growing(column: Column, words: tuple[str, ...]) -> Iterator[Suggestion]:
    """Yield the suggestion that a column only grows; what is below 0 is no age and no count."""
    word = next((word for word in words if word in GROWING or word in PERHAPS_GROWING), None)
    strong = next((word for word in words if word in GROWING), None)
    if word is None:
        return
    present = column.values[~column.missing]
    against = int((present < 0).sum()) if column.numeric else 0
    told = strong or word
    if (strong is None and column.kind == "real") or AGGREGATES & set(words):
        return
    meaning = GROWING.get(told) or PERHAPS_GROWING[told]
    reason = f"{told!r} in its name says that it {meaning}" + ("; but some rows are below 0" if against else "")
    yield Suggestion(
        "increasing",
        (column.name,),
        {"increasing": [column.name]},
        len(present) - against,
        against,
        reason,
        active=strong is not None and not against,
    )


def alike(first: str, second: str) -> bool:
    """Whether two names share a word of three letters or more."""
    return bool({word for word in words_of(first) if len(word) > 2} & set(words_of(second)))


def is_key(column: Column) -> bool:
    """Whether a whole number or text is nearly a number of the row: at least 95 % of its values are its own."""
    rows = int(np.count_nonzero(~column.missing))
    return column.kind in ("integer", "category") and rows >= 100 and column.distinct >= 0.95 * rows


def quotable(name: str) -> bool:
    """Whether rules in PLAF can name a column: they have no way to write a backquote or the end of a line."""
    return "`" not in name and "\n" not in name
