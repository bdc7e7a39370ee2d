"""The rows of a request: as codes, and as the model predicts them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, FeatureSpace, Floats
from mlflow_cf.features.plain_rows import PlainRows
from mlflow_cf.features.space import Misfit
from mlflow_cf.features.space import Share as ShareColumns
from mlflow_cf.model.judge import Decides, Label, Outcome
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.proof.verify import joined_outcomes
from mlflow_cf.words.statements import Statement, say


@dataclass(frozen=True, eq=False)
class CodedRows:
    """The rows of a request as codes.

    Attributes:
        frame: the rows (m, d); space: covers them.
        codes: (m, d); faults: why a row has none, by its position.
        unread: what reads rows that have codes and faults only once they are `read`; None: all have.
    """

    frame: pd.DataFrame
    space: FeatureSpace
    codes: Floats
    faults: dict[int, str]
    unread: PlainRows | None = None

    @classmethod
    def of(cls, known: FeatureSpace, frame: pd.DataFrame, share: ShareColumns = map) -> CodedRows:
        """Code rows by the `known` features, which are extended by levels that the background does not have.

        Args:
            known: the features; frame: the rows.
            share: as `map`, which may have threads.
        """
        space, codes, misfits = known.encode_covered(frame, share)
        faults: dict[int, str] = {row: _fault(misfit) for row, misfit in misfits.items()} if misfits else {}
        return cls(frame, space, codes, faults)

    @classmethod
    def unread_of(cls, known: FeatureSpace, frame: pd.DataFrame) -> CodedRows | None:
        """Return the rows of a long table of numbers, none of which is read yet; None of other tables."""
        unread = known.plain_rows(frame)
        return None if unread is None else cls(frame, known, np.empty((len(frame), len(known))), {}, unread)

    def read(self, some: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which of some rows, ascending, have codes; threads may read at once."""
        if self.unread is None or not len(some):
            return some
        rows = slice(int(some[0]), int(some[-1]) + 1)
        bad = self.unread.read(rows, self.codes)
        if bad is None:
            return some
        misfits = self.space.misfits(self.frame.iloc[rows], bad)
        faults = {rows.start + row: _fault(misfit) for row, misfit in misfits.items()}
        self.faults.update(faults)
        return np.setdiff1d(some, list(faults))


# What a value would have to be, as phrases.
NOUNS: Final = {
    "finite whole number": "finite_whole_number",
    "finite number": "finite_number",
    "ordinal": "ordinal",
    "category": "category",
    "boolean": "boolean",
}


def _fault(misfit: Misfit) -> Statement:
    """Return why a row cannot be explained that cannot be coded."""
    if misfit.most is not None:
        return say("exceeded", feature=misfit.feature, value=misfit.value, most=misfit.most)
    noun = say(NOUNS[misfit.noun])
    return say("misfit", feature=misfit.feature, value=misfit.value, noun=noun, dtype=misfit.dtype)


@dataclass(frozen=True, eq=False)
class Row:
    """A row with its codes (d,) and the model's prediction.

    Attributes:
        fault: why it cannot be explained, or ""; unanswered: whether that is because the model could not be asked.
    """

    codes: Floats
    fault: str
    prediction: Label | None
    outcome: Outcome | None
    unanswered: bool = False

    @property
    def own(self) -> int:
        """The position of the class that is predicted, -1 without."""
        return -1 if self.outcome is None else int(self.outcome.codes[0])

    @property
    def expected(self) -> bool:
        """Whether the outcome is a prediction of the opened model; the logged one was not asked yet."""
        return self.prediction is None and self.own >= 0


def check_rows(rows: object, most: int) -> None:
    """Refuse a table of more rows than `most`, before anything is done with it.

    Raises:
        InputError: there are more.
    """
    if isinstance(rows, Sized) and len(rows) > most:
        raise InputError("rows", f"{len(rows):,} are more than the policy's {most:,}", "send fewer at a time")


@dataclass(frozen=True, eq=False)
class PredictedRows(Sequence[Row]):
    """The rows of a table as the model predicts them; a `Row` is made when it is read.

    Attributes:
        codes: (m, d) of all rows.
        place: (m,) where each row stands among those that were predicted together; -1: it was predicted alone.
        labels, outcome: what the model says of those that were predicted together.
        alone: the others, by number.
    """

    codes: Floats
    place: NDArray[np.intp]
    labels: Sequence[Label]
    outcome: Outcome
    alone: Mapping[int, Row]

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, number: int) -> Row: ...

    @overload
    def __getitem__(self, number: slice) -> list[Row]: ...

    def __getitem__(self, number: int | slice) -> Row | list[Row]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        place = int(self.place[number])
        if place < 0:
            return self.alone[range(len(self))[number]]
        return Row(self.codes[number], "", self.labels[place], self.outcome.take(slice(place, place + 1)))


Predicted = tuple[list[Label], Outcome] | dict[int, Row]  # of rows together, or of each that had to be asked alone
Part = tuple[NDArray[np.intp], Predicted]  # rows, and what is said of them
Share = Callable[[Callable[[NDArray[np.intp]], Part], Sequence[NDArray[np.intp]]], Iterable[Part]]


class Reading:
    """Rows while the model predicts them, part by part.

    Attributes:
        codes: (m, d) of all rows.
        place: (m,) as in `PredictedRows`, -1 too of rows that are still to be predicted.
        own: (m,) the position of the class that is predicted, -1 without, and where `place` is.
        left: the numbers (n,) of the rows of each part that nobody predicts yet.
    """

    def __init__(self, judge: Decides, coded: CodedRows, parts: int) -> None:
        """Set up for rows that `judge` predicts in so many calls; those that make it fail are asked alone."""
        self.codes, self._judge, self._coded = coded.codes, judge, coded
        self.place, self.own = (np.full(len(coded.codes), -1) for _ in range(2))
        good = np.delete(np.arange(len(coded.codes)), list(coded.faults))
        self.left = deque(np.array_split(good, parts))
        self._labels, self._outcomes, self._alone = list[Label](), list[Outcome](), dict[int, Row]()

    def predict(self, part: NDArray[np.intp]) -> Part:
        """Return which rows of a part have codes, and what the model says of those; threads may do so at once."""
        codes, some = self.codes, self._coded.read(part)
        try:
            return some, self._judge.predict(CodedTable(self._coded.space, codes[_in_a_row(some)], was_table=True))
        except UnavailableError as error:
            return some, {row: Row(codes[row], error.reason, None, None, unanswered=True) for row in some.tolist()}
        except Exception:  # noqa: BLE001  any model, any error: the rows it can predict must still be answered
            decode = self._coded.space.decode
            return some, {row: _single(self._judge, decode(codes[[row]]), codes[row], "") for row in some.tolist()}

    def note(self, some: NDArray[np.intp], told: Predicted) -> None:
        """Note what the model says of some rows; by one thread at a time."""
        if isinstance(told, dict):
            self._alone |= told
            return
        (labels, outcome), where = told, _in_a_row(some)
        self.place[where] = np.arange(len(self._labels), len(self._labels) + len(some))
        self.own[where] = outcome.codes
        self._labels += labels
        self._outcomes.append(outcome)

    def finished(self, share: Share = map) -> PredictedRows:
        """Return all rows, after those that are left.

        Args:
            share: as `map`, which may have threads.

        Raises:
            InputError: the model can predict none of them.
        """
        left, frame = [self.left.popleft() for _ in range(len(self.left))], self._coded.frame
        for some, told in share(self.predict, left):
            self.note(some, told)
        alone, labels = self._alone, self._labels
        for row, fault in sorted(self._coded.faults.items()):
            alone[row] = _single(self._judge, frame.iloc[[row]].reset_index(drop=True), self.codes[row], fault)
        if not labels and not any(row.outcome or row.unanswered for row in alone.values()):
            fault = alone[0].fault
            raise InputError("rows", f"the model can predict none of them ({fault})", "check the values of the rows")
        outcome = joined_outcomes(self._outcomes or [Outcome(np.empty(0, dtype=np.intp))])
        self._outcomes = []
        return PredictedRows(self.codes, self.place, labels, outcome, alone)


def _in_a_row(some: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Return rows by their numbers, ascending, as a slice if none is left out: to take those copies nothing."""
    follow = len(some) > 0 and some[-1] - some[0] == len(some) - 1
    return slice(int(some[0]), int(some[-1]) + 1) if follow else some


def read_rows(judge: Decides, coded: CodedRows) -> PredictedRows:
    """Predict rows; those that make the model fail are asked alone and marked.

    Raises:
        InputError: it can predict none of them.
    """
    return Reading(judge, coded, 1).finished()


def _single(judge: Decides, frame: pd.DataFrame, codes: Floats, fault: str) -> Row:
    try:
        labels, outcome = judge.predict(frame)
    except UnavailableError as error:
        return Row(codes, fault or error.reason, None, None, unanswered=True)
    except Exception as error:  # noqa: BLE001  see above; the message may quote the row, so only the type is kept
        return Row(codes, fault or say("unpredictable", kind=type(error).__name__), None, None)
    return Row(codes, fault, labels[0], outcome)


class SomeRows(Mapping[int, Row]):
    """Some rows of a table by their number, ascending; a `Row` is made when it is read.

    Attributes:
        numbers: (n,) of the rows.
    """

    def __init__(self, rows: Sequence[Row], numbers: NDArray[np.intp]) -> None:
        """Choose rows by number."""
        self._rows, self.numbers = rows, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __getitem__(self, number: int) -> Row:
        at = int(np.searchsorted(self.numbers, number))
        if at == len(self.numbers) or self.numbers[at] != number:
            raise KeyError(number)
        return self._rows[number]


def numbers_of(rows: Mapping[int, Row]) -> NDArray[np.intp]:
    """Return the numbers (n,) of some rows, in order."""
    return rows.numbers if isinstance(rows, SomeRows) else np.fromiter(rows, dtype=np.intp, count=len(rows))
