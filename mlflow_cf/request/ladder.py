"""Ladders: the nearest answer for each of several targets, each of which asks for more than the one before it.

What meets a rung meets all rungs below. So nothing is searched for a rung that the answer of the one below meets as
well, nor for a rung above an impossible one, and no answer is nearer than that of the rung below.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal import Requirements
from mlflow_cf.policy import Query, Target
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Counterfactual, Explanation, Proof
from mlflow_cf.words.statements import joined, phrases_in, say

# A target, rows, and the seconds that they may take (None: as long as it takes) -> their explanations.
Ask = Callable[[Target, pd.DataFrame, float | None], Explanations]
ALREADY: Final = say("holds_already")
FINAL = ("invalid", "skipped")  # statuses that no rung changes


def check_ladder(query: Query) -> None:
    """Refuse what is not answered rung by rung.

    Raises:
        InputError: several answers, levers or responsiveness beside a ladder.
    """
    asked = {
        "count": query.count > 1,
        "levers": query.levers is not None,
        "responsiveness": query.responsiveness,
        "reasons": query.reasons,
    }
    for key, beside in asked.items():
        if beside:
            raise InputError(key, "a ladder has one answer for each of its rungs", "leave it out, or ask by itself")


Serves = Callable[[Target, Counterfactual], bool]


def answer_ladder(
    target: Target, table: pd.DataFrame, ask: Ask, seconds: float | None, *, serves: Serves
) -> Explanations:
    """Return one explanation per row of a table (m, d), with a counterfactual for every rung that has one.

    Args:
        target: with its ladder.
        table: the rows.
        ask: explains rows for a single target.
        seconds: for all rungs together; each gets an even share of what is left.
        serves: whether the answer of a rung certainly meets the target of a higher one.
    """
    rungs, until = target.rungs, None if seconds is None else time.perf_counter() + seconds
    told: list[list[Explanation]] = [[] for _ in range(len(table))]
    space: FeatureSpace | None = None
    for number, rung in enumerate(rungs):
        served = [_served(before, rung, serves) for before in told]
        waiting = [row for row, one in enumerate(served) if one is None]
        if waiting:
            share = None if until is None else max(until - time.perf_counter(), 1e-9) / (len(rungs) - number)
            found = ask(rung, table.iloc[waiting], share)
            space = found.space
            for row, answer in zip(waiting, found, strict=True):
                served[row] = answer
        for before, one in zip(told, served, strict=True):
            if one is not None:
                before.append(_bounded(one, before))
    if space is None:
        raise InputError("rows", "there are none", "send at least one row")
    return Explanations(tuple(_joined(rungs, one) for one in told), table.index, space)


def _served(before: Sequence[Explanation], rung: Target, serves: Serves) -> Explanation | None:
    """Return what the rungs below tell of a rung, at no further cost; None: nothing."""
    if not before:
        return None
    last = before[-1]
    proved = last.status == "infeasible" and "nothing_left" not in phrases_in(last.reason)
    if last.status in FINAL or proved or (last.counterfactuals and serves(rung, last.counterfactuals[0])):
        return replace(last, evaluations=0, judge_calls=0, judged_rows=0, diagnostics={})
    return None


def serves_rung(requirements: Requirements, rung: Target, found: Counterfactual) -> bool:
    """Return whether an answer certainly meets the target of a rung, by what the logged model says of it.

    False where other models or plausibility are required as well, or any other label is wanted: only a search tells.
    """
    if requirements.further or rung.differs:
        return False
    if rung.interval:
        value = float(found.prediction)
        return (rung.low is None or rung.low <= value) and (rung.high is None or value <= rung.high)
    least = rung.with_margin(requirements.margin).min_probability or 0.0
    return found.probability is not None and found.probability >= least


def _bounded(one: Explanation, before: Sequence[Explanation]) -> Explanation:
    """Return an explanation whose answer is no nearer than what bounds the answers of the rungs below."""
    bounds = [found.bound for last in before[-1:] for found in last.counterfactuals if found.bound is not None]
    if not bounds or not one.counterfactuals:
        return one
    found = one.counterfactuals[0]
    low = max(*bounds, -np.inf if found.bound is None else found.bound)
    if found.proof == "optimal" or low == found.bound or low > found.distance:
        return one
    proof: Proof = "optimal" if low == found.distance else "bounded"
    return replace(one, counterfactuals=(replace(found, bound=low, proof=proof),))


def _joined(rungs: Sequence[Target], told: Sequence[Explanation]) -> Explanation:
    """Return the explanations of all rungs of a row as one."""
    first = told[0]
    if first.status in FINAL:
        return first
    answers = tuple(
        replace(one.counterfactuals[0], rung=number) for number, one in enumerate(told, start=1) if one.counterfactuals
    )
    open_ones = [one for one in told if one.status != "already"]
    status = "found" if answers else open_ones[0].status if open_ones else "already"
    reasons = [
        say("rung", number=number, target=_words(rung), reason=ALREADY if one.status == "already" else one.reason)
        for number, (rung, one) in enumerate(zip(rungs, told, strict=True), start=1)
        if one.reason or (one.status == "already" and open_ones)
    ]
    seconds = sum(one.diagnostics.get("seconds", 0.0) for one in told)
    return replace(
        first,
        status=status,
        reason=joined(*reasons),
        counterfactuals=answers,
        evaluations=sum(one.evaluations for one in told),
        judge_calls=sum(one.judge_calls for one in told),
        judged_rows=sum(one.judged_rows for one in told),
        diagnostics={**first.diagnostics, "seconds": seconds, "rungs": [one.status for one in told]},
    )


def _words(rung: Target) -> str:
    """Return what a rung asks for."""
    if rung.min_probability is not None:
        return say("probability", least=rung.min_probability)
    low, high = rung.low, rung.high
    if low is not None and high is not None:
        return say("from_to", low=low, high=high)
    return say("or_more", low=low) if low is not None else say("or_less", high=high)
