"""Answers that stand in arrays, and what a reply, a table or typed columns show of them, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.features.codec import EXACT_INTEGER
from mlflow_cf.features.feature import Feature
from mlflow_cf.words.changes import Change, written
from mlflow_cf.words.result import Counterfactual, Explanation, Status, Survived
from mlflow_cf.words.sentences import Speaker

Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of values as the places (n,) of each among the `distinct` ones."""

    distinct: Sequence[Any]
    places: Numbers

    def each(self, change: Callable[[Any], Any]) -> Coded:
        """Return the column with every value changed."""
        return Coded([change(value) for value in self.distinct], self.places)

    def to_objects(self) -> NDArray[np.object_]:
        """Return the values (n,)."""
        return objects(self.distinct)[self.places]


# Numbers as an array, where NaN is a missing one; others by their distinct values, or one by one.
Column = NDArray[Any] | Coded | list[Any]


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Return values (n,) as an array of objects: of lists, `np.array` would make further axes."""
    return np.fromiter(values, dtype=object, count=len(values))


def plain(column: Column) -> list[Any]:
    """Return a column as plain Python values, None for a missing number."""
    if isinstance(column, Coded):
        column = column.to_objects()
    if isinstance(column, list):
        return column
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        for place in np.flatnonzero(np.isnan(column)).tolist():
            values[place] = None
    return values


def value_column(feature: Feature, codes: Floats) -> Column:
    """Return what `Feature.value` says of every code (n,)."""
    if feature.kind == "real":
        return codes
    if feature.kind == "integer" and ((np.floor(codes) == codes) & (np.abs(codes) <= EXACT_INTEGER)).all():
        return codes.astype(np.int64)
    return coded_values(feature, codes)


def coded_values(feature: Feature, codes: Floats) -> Coded:
    """Return the same by distinct values; 0.0 and -0.0 are two."""
    places, distinct = pd.factorize(np.ascontiguousarray(codes).view(np.int64))
    return Coded([feature.value(code) for code in distinct.view(np.float64).tolist()], places)


class Changes(NamedTuple):
    """What k counterfactuals change, one after the other, each in column order.

    Attributes:
        start: (k + 1,) where the changes of each begin.
        features: (c,) names; before, after: (c,) values as the text of a reply.
        clauses: (c,) of sentences.
    """

    start: Numbers
    features: NDArray[np.object_]
    before: NDArray[np.object_]
    after: NDArray[np.object_]
    clauses: NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class AnswerArrays:
    """Rows with counterfactuals that nothing but changes is said of, and rows that need none.

    Attributes:
        rows: (m,) their numbers, ascending.
        predictions: (m,) of the model, None without; probabilities: (m,) of what is wanted, NaN without.
        evaluations: (m,) rows scored for each.
        owner: (k,) the place in `rows` of the row that each counterfactual answers, ascending.
        before, codes: (k, d) codes of these rows, and of the counterfactuals; what does not change is the same in both,
            also the sign of 0.
        outcomes: (k,) predictions of these; likely: (k,) their probabilities, NaN without.
        distance: (k,) between both.
        proofs, bounds: (k,) what is proved of each; NaN: no bound.
        survived: (k,) how surely each holds under models that retraining may give; None: that is not required.
        bare: what is said of a row without counterfactuals, but for its prediction.
        space: the features; it knows the levels of these rows.
        speaker: makes sentences.
    """

    rows: Numbers
    predictions: list[Level | None]
    probabilities: Floats
    evaluations: Numbers
    owner: Numbers
    before: Floats
    codes: Floats
    outcomes: list[Level]
    likely: Floats
    distance: Floats
    proofs: list[str]
    bounds: Floats
    survived: list[Survived | None]
    bare: Explanation
    space: FeatureSpace
    speaker: Speaker

    @cached_property
    def start(self) -> Numbers:
        """(m + 1,) where the counterfactuals of each row begin."""
        return starts(self.owner, len(self.rows))

    @property
    def statuses(self) -> NDArray[np.object_]:
        """(m,) what came of each row."""
        found: Status = "found"
        return np.where(np.diff(self.start) > 0, objects([found]), objects([self.bare.status]))

    @cached_property
    def changed(self) -> tuple[Numbers, Numbers]:
        """(c,) of each change its counterfactual, and its column."""
        before, after = self.before, self.codes
        changed = (before != after) & ~(np.isnan(before) & np.isnan(after))
        for column in self._dates:  # those closer than microseconds are told alike
            some = np.flatnonzero(changed[:, column])
            feature = self.space.features[column]
            old, new = (coded_values(feature, codes[some, column]).to_objects() for codes in (before, after))
            changed[some, column] = old != new
        owner, columns = np.nonzero(changed)
        return owner, columns

    @property
    def n_changed(self) -> Numbers:
        """(k,) how many features each counterfactual changes."""
        return np.bincount(self.changed[0], minlength=len(self.owner))

    @cached_property
    def changes(self) -> Changes:
        """What each counterfactual changes."""
        owner, columns = self.changed
        features, before, after, clauses = (np.empty(len(owner), dtype=object) for _ in range(4))
        for column in np.unique(columns).tolist():
            feature, some = self.space.features[column], np.flatnonzero(columns == column)
            old, new = (coded_values(feature, codes[owner[some], column]) for codes in (self.before, self.codes))
            features[some] = feature.name
            before[some], after[some] = old.each(written).to_objects(), new.each(written).to_objects()
            pairs, distinct = pd.factorize(old.places * len(new.distinct) + new.places)
            told = [
                self.speaker.clause(Change(feature.name, old.distinct[one], new.distinct[other]))
                for one, other in zip(*(part.tolist() for part in divmod(distinct, len(new.distinct))), strict=True)
            ]
            clauses[some] = Coded(told, pairs).to_objects()
        return Changes(starts(owner, len(self.owner)), features, before, after, clauses)

    @cached_property
    def texts(self) -> list[str]:
        """(k,) the changes of each counterfactual in a sentence."""
        clauses = slices(self.changes.clauses.tolist(), self.changes.start)
        told = {outcome: self.speaker.outcome_of(outcome) for outcome in set(self.outcomes)}
        return [
            self.speaker.surviving(self.speaker.sentence(some, told[outcome]), survived)
            for some, outcome, survived in zip(clauses, self.outcomes, self.survived, strict=True)
        ]

    @cached_property
    def values(self) -> dict[str, Column]:
        """(k,) every feature's values in the counterfactuals."""
        return {
            feature.name: value_column(feature, self.codes[:, column])
            for column, feature in enumerate(self.space.features)
        }

    @property
    def facts(self) -> dict[str, Column]:
        """(k,) what is known of the counterfactuals beside their rows: what `FACTS` names."""
        return {
            "prediction": self.outcomes,
            "probability": self.likely,
            "distance": self.distance,
            "n_changed": self.n_changed,
            "proof": self.proofs,
        }

    @property
    def told(self) -> dict[str, Column]:
        """(k,) what a reply tells of them beside their rows and changes."""
        survival = [None if one is None else asdict(one) for one in self.survived]
        return {**self.facts, "bound": self.bounds, "text": self.texts, "survival": survival}

    def to_records(self) -> dict[str, list[Any]]:
        """Return the records of a reply by key: of each (m,) values, none of which two rows share if it can change."""
        found = self._found()
        told = {
            "prediction": self.predictions,
            "probability": plain(self.probabilities),
            "status": self.statuses.tolist(),
            "counterfactuals": list(slices(found, self.start)),
            "evaluations": self.evaluations.tolist(),
        }
        rows = len(self.rows)
        return {key: told[key] if key in told else _copies(one, rows) for key, one in self.bare.to_dict().items()}

    def _found(self) -> list[dict[str, Any]]:
        """Return the records (k,) of the counterfactuals."""
        names, values = list(self.values), zip(*map(plain, self.values.values()), strict=True)
        start, *texts = self.changes[:4]
        said = zip(*(part.tolist() for part in texts), strict=True)
        changes = [{"feature": feature, "from": before, "to": after} for feature, before, after in said]
        told: dict[str, list[Any]] = {
            "row": [dict(zip(names, one, strict=True)) for one in values],
            "changes": list(slices(changes, start)),
            **{key: plain(column) for key, column in self.told.items()},
        }
        count = len(self.owner)
        columns = [told[key] if key in told else _copies(one, count) for key, one in UNTOLD.items()]
        return [dict(zip(UNTOLD, one, strict=True)) for one in zip(*columns, strict=True)]

    @property
    def _dates(self) -> list[int]:
        return [column for column, feature in enumerate(self.space.features) if feature.kind == "date"]


# A counterfactual's record of which nothing is known.
UNTOLD: Final[Mapping[str, Any]] = Counterfactual({}, (), 0, None, 0.0, 0).to_dict()


def starts(owner: Numbers, count: int) -> Numbers:
    """Return (count + 1,) where the parts of each of so many owners begin; those of the parts (k,) are ascending."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def slices(values: list[Any], start: Numbers) -> Iterator[list[Any]]:
    """Yield the values from each place of `start` (n + 1,) up to the next."""
    return (values[begin:end] for begin, end in pairwise(start.tolist()))


def _copies(value: Any, count: int) -> list[Any]:
    """Return a value of a record so many times, each with lists and objects of its own."""
    if isinstance(value, dict):
        columns = [_copies(part, count) for part in value.values()]
        return [dict(zip(value, one, strict=True)) for one in zip(*columns, strict=True)]
    if isinstance(value, list):
        return [list(value) for _ in range(count)]
    return [value] * count
