"""The answers for all rows of a request, as a sequence, a table or a reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.words.result import FACTS, Explanation, counterfactual_table, with_facts
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


class CodedAnswers(NamedTuple):
    """Counterfactuals of some rows, as arrays; those of a row follow each other.

    Attributes:
        rows: (k,) the number of the row that each is for; codes: (k, d) of each.
        facts: what `FACTS` names, of each.
    """

    rows: NDArray[np.intp]
    codes: Floats
    facts: Mapping[str, list[Any]]

    @property
    def places(self) -> list[int]:
        """Which of its row's counterfactuals each is, from 1 on."""
        at = np.arange(len(self.rows))
        begins = np.append(True, self.rows[1:] != self.rows[:-1])[: len(at)]
        places: list[int] = (at - np.maximum.accumulate(np.where(begins, at, 0)) + 1).tolist()
        return places


class LazyExplanations(Sequence[Explanation]):
    """Explanations that are made from arrays when they are first read."""

    def __init__(self, make: Callable[[int], Explanation], rows: int, coded: Callable[[], CodedAnswers]) -> None:
        """Set up for so many rows.

        Args:
            make: returns the explanation of a row by its number.
            rows: how many there are.
            coded: returns the counterfactuals of those that are known as arrays.
        """
        self._make, self._made, self._coded = make, list[Explanation | None]([None]) * rows, coded

    def to_frame(self, space: FeatureSpace) -> tuple[pd.DataFrame, NDArray[np.intp]]:
        """Return the table of all counterfactuals, and the number of the row (k,) that each was found for."""
        coded = self._coded()
        others = np.delete(np.arange(len(self)), coded.rows).tolist()
        found = [(row, at, one) for row in others for at, one in enumerate(self[row].counterfactuals, start=1)]
        space, codes = space.coded([one.row for _, _, one in found])
        rows = np.concatenate([coded.rows, np.array([row for row, _, _ in found], dtype=np.intp)])
        order = np.argsort(rows, kind="stable")
        table = space.decode(np.concatenate([coded.codes, codes])[order])
        facts = {"counterfactual": coded.places + [at for _, at, _ in found]}
        facts |= {key: coded.facts[key] + [getattr(one, key) for _, _, one in found] for key in FACTS}
        places = order.tolist()
        return with_facts(table, {key: [values[at] for at in places] for key, values in facts.items()}), rows[order]

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
        answers = np.empty((len(self.items), len(RECORD)), dtype=object)  # one block: columns take five times as long
        for place, explanation in enumerate(self.items):
            for column, value in enumerate(explanation.to_dict().values()):
                answers[place, column] = value  # one by one: of lists, numpy would make further axes
        return pd.DataFrame(answers, index=self.index, columns=RECORD.view(), dtype=object, copy=False)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per counterfactual with the index of the row it was found for.

        Columns are those of `Explanation.to_frame`. Rows without a counterfactual have none; a column of the index is
        repeated for every further counterfactual of its row.
        """
        if isinstance(self.items, LazyExplanations):
            table, rows = self.items.to_frame(self.space)
            return table.set_axis(self.index.take(rows), axis=0)
        found = [explanation.counterfactuals for explanation in self.items]
        table = counterfactual_table(self.space, found)
        rows = np.repeat(np.arange(len(found)), [len(several) for several in found])
        return table.set_axis(self.index.take(rows), axis=0)

    def to_table(self, places: Sequence[int]) -> pd.DataFrame:
        """Return the rows at these places with all that was found for them, as one table for a file.

        There is one line per counterfactual, and one per row without any: the row's place, status and reason, then what
        `to_frame` has, which is missing where there is no counterfactual. A column gets an underscore behind its name
        where a feature has it.
        """
        asked = [self.items[place] for place in places]
        frame = counterfactual_table(self.space, [answer.counterfactuals for answer in asked])
        lines = [line for line, answer in enumerate(asked) for _ in answer.counterfactuals]
        found = frame.set_axis(pd.Index(lines, dtype=np.int64), axis=0)
        facts = {
            "row": list(places),
            "status": [answer.status for answer in asked],
            "reason": [answer.reason for answer in asked],
        }
        named = {key + "_" * (key in found.columns): values for key, values in facts.items()}
        return pd.DataFrame(named).join(found.convert_dtypes(), how="left").reset_index(drop=True)

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
        counts = Counter(explanation.status for explanation in self.items).most_common()
        return ", ".join(f"{count:,} {status}" for status, count in counts)


def _words(explanation: Explanation) -> str:
    return " | ".join(line.strip() for line in str(explanation).splitlines())


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
