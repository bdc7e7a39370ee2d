"""The answers for all rows of a request, as a sequence, a table or a reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.words.arrays import AnswerArrays, objects, plain, starts
from mlflow_cf.words.result import FACTS, Explanation, Status, with_facts
from mlflow_cf.words.sentences import Speaker, counted

SHOWN, SHOWN_AS_HTML = 3, 10  # rows
WIDTH: Final = 100
RECORD: Final = pd.Index(list(Explanation("skipped", "", None, None).to_dict()))  # made of names, it takes longer


class Interrupted(KeyboardInterrupt):
    """Explaining was interrupted, and holds what there is.

    Attributes:
        explanations: of all rows; those that were not searched yet have the status ``budget``.
    """

    def __init__(self, explanations: Explanations, done: int, rows: int) -> None:
        super().__init__(
            f"{done:,} of {rows:,} rows were explained; they are the `explanations` of this exception (in a notebook: "
            "import sys; sys.last_value.explanations)"
        )
        self.explanations = explanations


@dataclass(frozen=True, eq=False)
class CodedAnswers:
    """What a table tells of m rows, and of their k counterfactuals in order, as arrays.

    Attributes:
        statuses, reasons: (m,) of all rows.
        rows: (k,) which of them each counterfactual is of.
        space: the features, with codes for all levels of the counterfactuals; codes: (k, d) of these.
        facts: what is known of each: its number among those of its row, what `FACTS` names, and its rung where some
            have one.
    """

    statuses: Sequence[Status]
    reasons: Sequence[str]
    rows: NDArray[np.intp]
    space: FeatureSpace
    codes: Floats
    facts: Mapping[str, list[Any]]

    @classmethod
    def of(cls, arrays: AnswerArrays | None, others: Mapping[int, Explanation], space: FeatureSpace) -> CodedAnswers:
        """Return what is told of rows that stand in arrays, and of all others by number."""
        found = [(row, one) for row, several in others.items() for one in several.counterfactuals]
        answers = [one for _, one in found]
        beside = space if arrays is None else arrays.space.bare  # which knows levels that the background lacks
        space, codes = beside.coded([one.row for one in answers])
        rows = np.array([row for row, _ in found], dtype=np.intp)
        told = (*FACTS, "rung") if any(one.rung for one in answers) else FACTS
        facts = {key: [getattr(one, key) for one in answers] for key in told}
        count = len(others) + (0 if arrays is None else len(arrays.rows))
        statuses, reasons = np.full((2, count), "", dtype=object)
        for row, one in others.items():
            statuses[row], reasons[row] = one.status, one.reason
        if arrays is not None:
            known, rung = arrays.facts, [None] * len(arrays.owner)
            rows = np.concatenate([arrays.rows[arrays.owner], rows])
            codes = np.concatenate([arrays.codes, codes]) if others else arrays.codes
            facts = {key: (plain(known[key]) if key in known else rung) + values for key, values in facts.items()}
            statuses[arrays.rows] = arrays.statuses
        if arrays is not None and others:
            order = np.argsort(rows, kind="stable")
            rows, codes, places = rows[order], codes[order], order.tolist()
            facts = {key: [values[at] for at in places] for key, values in facts.items()}
        numbers = np.arange(len(rows)) - np.searchsorted(rows, rows) + 1
        numbered = {"counterfactual": numbers.tolist(), **facts}
        return cls(statuses.tolist(), reasons.tolist(), rows, space, codes, numbered)

    def lines(self, places: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the lines of a table of the rows at some places: one a counterfactual, or one for a row without any.

        Returns:
            (l,) the row that each line is of; (l,) its counterfactual, -1 without.
        """
        asked = np.asarray(places, dtype=np.intp)
        start = starts(self.rows, len(self.statuses))
        count = np.diff(start)[asked]
        lines = np.maximum(count, 1)
        first = np.repeat(np.cumsum(lines) - lines, lines)
        at = np.repeat(start[asked], lines) + np.arange(len(first)) - first
        return np.repeat(asked, lines), np.where(np.repeat(count, lines) > 0, at, -1)

    def to_frame(self) -> pd.DataFrame:
        """Return the counterfactuals as a table."""
        return with_facts(self.space.decode(self.codes), self.facts)


class LazyExplanations(Sequence[Explanation]):
    """Explanations that are made when they are first read, where arrays hold what is known of most rows."""

    def __init__(self, make: Callable[[int], Explanation], rows: int, arrays: Callable[[], AnswerArrays]) -> None:
        """Set up for so many rows.

        Args:
            make: returns the explanation of a row by its number.
            rows: how many there are.
            arrays: returns what arrays hold, which is the same as `make` returns.
        """
        self._make, self._made, self.arrays = make, list[Explanation | None]([None]) * rows, arrays

    def others(self, arrays: AnswerArrays) -> dict[int, Explanation]:
        """Return the explanations of the rows that arrays do not hold, by number."""
        return {row: self[row] for row in np.delete(np.arange(len(self)), arrays.rows).tolist()}

    def told(self, change: Callable[[Explanation], Explanation]) -> LazyExplanations:
        """Return the same with explanations that are changed when they are read, but for what arrays hold."""
        return LazyExplanations(lambda row: change(self._make(row)), len(self), self.arrays)

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, at: int) -> Explanation: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Explanation, ...]: ...

    def __getitem__(self, at: int | slice) -> Explanation | tuple[Explanation, ...]:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        number = range(len(self))[at]
        made = self._made[number]
        if made is None:
            made = self._made[number] = self._make(number)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # explanations hold dicts

    def __reduce__(self) -> tuple[type[tuple[Explanation, ...]], tuple[list[Explanation]]]:
        """Copy the explanations: what makes them belongs to this process."""
        return tuple, (list(self),)


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Sequence[Explanation]):
    """One explanation per row, in the order of the rows.

    Attributes:
        items: the explanations.
        index: (m,) the rows' own index.
        space: the model's features.
    """

    items: Sequence[Explanation]
    index: pd.Index[Any] = field()  # type: ignore[assignment]  # as a table has one; a sequence would look for an item
    space: FeatureSpace = field(repr=False)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Explanation: ...

    @overload
    def __getitem__(self, at: slice) -> Explanations: ...

    def __getitem__(self, at: int | slice) -> Explanation | Explanations:
        if isinstance(at, slice):
            return Explanations(self.items[at], self.index[at], self.space)
        return self.items[at]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanations):
            return NotImplemented
        return self.items == other.items and self.index.equals(other.index)

    __hash__ = None  # type: ignore[assignment]  # explanations hold dicts

    def to_dict(self) -> dict[str, Any]:
        """Return the reply that a server gives for these rows."""
        return {"predictions": [explanation.to_dict() for explanation in self.items]}

    def to_records(self) -> pd.DataFrame:
        """Return one record per row as a table of plain values: what a served model returns before it becomes JSON."""
        arrays, others = self.parts()
        answers = np.empty((len(self.items), len(RECORD)), dtype=object)  # one block: columns take five times as long
        if arrays is not None:
            for column, values in enumerate(arrays.to_records().values()):
                answers[arrays.rows, column] = objects(values)
        for place, explanation in others.items():
            for column, value in enumerate(explanation.to_dict().values()):
                answers[place, column] = value  # one by one: of lists, numpy would make further axes
        return pd.DataFrame(answers, index=self.index, columns=RECORD.view(), dtype=object, copy=False)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per counterfactual with the index of the row it was found for.

        Columns are those of `Explanation.to_frame`. Rows without a counterfactual have none; a column of the index is
        repeated for every further counterfactual of its row.
        """
        coded = self.coded()
        return coded.to_frame().set_axis(self.index.take(coded.rows), axis=0)

    def to_table(self, places: Sequence[int]) -> pd.DataFrame:
        """Return the rows at these places with all that was found for them, as one table for a file.

        There is one line per counterfactual, and one per row without any: the row's place, status and reason, then what
        `to_frame` has, which is missing where there is no counterfactual. A column gets an underscore behind its name
        where a feature has it.
        """
        coded = self.coded()
        rows, answers = coded.lines(places)
        found = coded.to_frame().iloc[answers[answers >= 0]].convert_dtypes()
        told = rows.tolist()
        facts = {
            "row": told,
            "status": [coded.statuses[row] for row in told],
            "reason": [coded.reasons[row] for row in told],
        }
        named = {key + "_" * (key in found.columns): values for key, values in facts.items()}
        return pd.DataFrame(named).join(found.set_axis(np.flatnonzero(answers >= 0), axis=0), how="left")

    def parts(self) -> tuple[AnswerArrays | None, Mapping[int, Explanation]]:
        """Return what arrays hold, if they hold any rows, and the explanations of all other rows by number."""
        if not isinstance(self.items, LazyExplanations):
            return None, dict(enumerate(self.items))
        arrays = self.items.arrays()
        return (arrays if len(arrays.rows) else None), self.items.others(arrays)

    def coded(self) -> CodedAnswers:
        """Return all counterfactuals as arrays."""
        return CodedAnswers.of(*self.parts(), self.space)

    @property
    def statuses(self) -> list[Status]:
        """(m,) what came of each row."""
        arrays, others = self.parts()
        if arrays is None:
            return [one.status for one in others.values()]
        statuses = np.empty(len(self), dtype=object)
        statuses[arrays.rows] = arrays.statuses
        for row, one in others.items():
            statuses[row] = one.status
        told: list[Status] = statuses.tolist()
        return told

    @property
    def summary(self) -> str:
        """How many rows there are of each status: ``3 rows: 2 found, 1 already``."""
        return f"{counted(len(self), 'row')}: {self._counts()}" if self.items else "no rows"

    def __repr__(self) -> str:
        lines = [f"Explanations of {self.summary}"]
        for label, explanation in zip(self.index[:SHOWN], self.items[:SHOWN], strict=True):
            lines.append(_cut(f"  {label}: {_words(explanation)}"))
        return "\n".join(lines if len(self) <= SHOWN else [*lines, "  ..."])

    def _repr_html_(self) -> str:
        """Return a table for notebooks: a line per row, answers first, with old and new values side by side."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        answered = islice((place for place, one in enumerate(self.items) if one.counterfactuals), SHOWN_AS_HTML)
        order = list(dict.fromkeys([*answered, *range(min(len(self), 2 * SHOWN_AS_HTML))]))[:SHOWN_AS_HTML]
        records = [(str(self.index[place]), self.items[place].to_dict()) for place in order]
        language = self.items[0].language if self.items else "en"
        speaker = Speaker(language, {feature.name: feature for feature in self.space.features})
        return cards.page(cards.answers(self.summary, records, speaker, len(self) - len(order)))

    def _counts(self) -> str:
        return ", ".join(f"{count:,} {status}" for status, count in Counter(self.statuses).most_common())


def _words(explanation: Explanation) -> str:
    return " | ".join(line.strip() for line in str(explanation).splitlines())


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
