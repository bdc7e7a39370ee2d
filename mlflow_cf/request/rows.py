"""The rows of a request: as codes, and as the model predicts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, FeatureSpace, Floats
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
    """

    frame: pd.DataFrame
    space: FeatureSpace
    codes: Floats
    faults: Mapping[int, str]

    @classmethod
    def of(cls, known: FeatureSpace, frame: pd.DataFrame, share: ShareColumns = map) -> CodedRows:
        """Code rows by the `known` features, which are extended by levels that the background does not have.

        Args:
            known: the features; frame: the rows.
            share: as `map`, which may have threads.
        """
        space, codes, misfits = known.encode_covered(frame, share)
        faults = {row: _fault(misfit) for row, misfit in misfits.items()} if misfits else {}
        return cls(frame, space, codes, faults)


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
Share = Callable[[Callable[[NDArray[np.intp]], Predicted], Sequence[NDArray[np.intp]]], Iterable[Predicted]]


def read_rows(judge: Decides, coded: CodedRows, parts: int = 1, share: Share = map) -> PredictedRows:
    """Predict rows; those that make the model fail are asked alone and marked.

    Args:
        judge: who predicts; coded: the rows.
        parts: in how many calls.
        share: as `map`, which may have threads.

    Raises:
        InputError: it can predict none of them.
    """
    frame, space, codes, faults = coded.frame, coded.space, coded.codes, coded.faults
    good = np.delete(np.arange(len(frame)), list(faults))
    place, alone = np.full(len(frame), -1), dict[int, Row]()
    labels, outcomes = list[Label](), [Outcome(np.empty(0, dtype=np.intp))]

    def predicted(some: NDArray[np.intp]) -> Predicted:
        try:
            return judge.predict(CodedTable(space, codes[some]))
        except UnavailableError as error:
            return {row: Row(codes[row], error.reason, None, None, unanswered=True) for row in some.tolist()}
        except Exception:  # noqa: BLE001  any model, any error: the rows it can predict must still be answered
            return {row: _single(judge, space.decode(codes[[row]]), codes[row], "") for row in some.tolist()}

    divided = np.array_split(good, parts)
    for some, told in zip(divided, share(predicted, divided), strict=True):
        if isinstance(told, dict):
            alone |= told
        else:
            place[some] = np.arange(len(labels), len(labels) + len(some))
            labels += told[0]
            outcomes.append(told[1])
    for row, fault in faults.items():
        alone[row] = _single(judge, frame.iloc[[row]].reset_index(drop=True), codes[row], fault)
    if not labels and not any(row.outcome or row.unanswered for row in alone.values()):
        fault = alone[0].fault
        raise InputError("rows", f"the model can predict none of them ({fault})", "check the values of the rows")
    return PredictedRows(codes, place, labels, joined_outcomes(outcomes[1:] or outcomes), alone)


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
