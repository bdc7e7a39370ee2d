"""Inquiries side by side: generators that yield rows and are sent what the judge says about them.

So one call to the judge, whose price hardly depends on its size, serves all rows of a request.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.model.judge import Asked, AskedAlone, Decides, Outcome
from mlflow_cf.proof.verify import joined_outcomes

T = TypeVar("T")


def run_inquiries(
    judge: Decides, space: FeatureSpace, inquiries: Sequence[Generator[Asked, Outcome, T]]
) -> list[T | Exception]:
    """Run inquiries side by side, one call to the judge per round for all of them.

    Returns:
        The result of each, or the exception that ended it; the failure of one does not touch the others.
    """
    results: dict[int, T | Exception] = {}
    asked: dict[int, Asked] = {}
    for number, inquiry in enumerate(inquiries):
        _advance(number, inquiry, None, asked, results)
    while asked:
        numbers = list(asked)
        outcomes = _judged(judge, space, [asked.pop(number) for number in numbers])
        for number, outcome in zip(numbers, outcomes, strict=True):
            _advance(number, inquiries[number], outcome, asked, results)
    return [results[number] for number in range(len(inquiries))]


def _advance(
    number: int,
    inquiry: Generator[Asked, Outcome, T],
    answer: Outcome | Exception | None,
    asked: dict[int, Asked],
    results: dict[int, T | Exception],
) -> None:
    """Let one inquiry go on until it asks again or ends."""
    if isinstance(answer, Exception):
        results[number] = answer
        return
    try:
        asked[number] = next(inquiry) if answer is None else inquiry.send(answer)
    except StopIteration as end:
        results[number] = end.value
    except Exception as error:  # noqa: BLE001  kept for the row it belongs to
        results[number] = error


def _judged(judge: Decides, space: FeatureSpace, batches: list[Asked]) -> list[Outcome | Exception]:
    """Ask the judge about all batches at once; one by one if it fails, so that only the culprit suffers."""
    together = [at for at, batch in enumerate(batches) if not isinstance(batch, AskedAlone)]
    found = dict(zip(together, _in_one_call(judge, space, [_rows(batches[at]) for at in together]), strict=True))
    for at, batch in enumerate(batches):
        if isinstance(batch, AskedAlone):
            found[at] = _one_by_one(judge, space, batch)
    return [found[at] for at in range(len(batches))]


def _one_by_one(judge: Decides, space: FeatureSpace, batch: AskedAlone) -> Outcome | Exception:
    """Ask the judge about row after row, of which each costs a call."""
    said: list[Outcome] = []
    for row in batch.rows:
        if batch.late():
            break
        outcome = _in_one_call(judge, space, [row[None]])[0]
        if isinstance(outcome, Exception):
            return outcome
        said.append(outcome)
    return joined_outcomes(said) if said else Outcome(np.empty(0, dtype=np.intp), None)


def _rows(batch: Asked) -> Floats:
    return batch.rows if isinstance(batch, AskedAlone) else batch


def _in_one_call(judge: Decides, space: FeatureSpace, batches: list[Floats]) -> list[Outcome | Exception]:
    if not batches:
        return []
    try:
        outcome = _verdict(judge, space, np.concatenate(batches))
    except Exception as error:  # noqa: BLE001  any model, any error
        return [error] if len(batches) == 1 else [_in_one_call(judge, space, [batch])[0] for batch in batches]
    ends = np.cumsum([len(batch) for batch in batches])
    return [outcome.take(slice(end - len(batch), end)) for batch, end in zip(batches, ends.tolist(), strict=True)]


def _verdict(judge: Decides, space: FeatureSpace, Z: Floats) -> Outcome:
    """Return what the judge says about rows as decoded; nothing of those that decode to another row than meant."""
    table, exact = space.decode_exactly(Z)
    outcome = judge.verdict(table)
    return outcome if exact.all() else outcome.withheld(~exact)
