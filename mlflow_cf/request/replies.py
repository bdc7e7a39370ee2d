"""Proved rows as the counterfactuals of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlflow_cf.proof.verify import Case, Proved
from mlflow_cf.words.result import Change, Counterfactual, describe_changes


def counterfactuals(case: Case, proved: Proved) -> Iterator[Counterfactual]:
    """Yield the counterfactuals of a row, with what is proved of each."""
    target, space = case.target, case.problem.space
    likely = target.probability(proved.outcome)
    distance = case.distance(proved.rows)
    old = space.values(case.problem.x0)
    for position, codes in enumerate(proved.rows):
        new = space.values(codes)
        changes = tuple(Change(name, old[name], new[name]) for name in new if _differs(old[name], new[name]))
        prediction = target.prediction(proved.outcome, position)
        yield Counterfactual(
            row=new,
            changes=changes,
            prediction=prediction,
            probability=likely[position],
            distance=float(distance[position]),
            n_changed=len(changes),
            proof=proved.proofs[position] if proved.proofs else "none",
            bound=proved.bounds[position] if proved.bounds else None,
            text=describe_changes(changes, prediction),
        )


def _differs(old: Any, new: Any) -> bool:
    return bool(old is not new and old != new)
