"""Verification of given counterfactuals: the prediction of each, and every constraint by name.

Also the order of plans, and the check that every step of a plan is possible and costs what the plan says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import moocore
import numpy as np
import pandas as pd

from mlflow_cf.constraints import Origin
from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats, Rows, as_rows
from mlflow_cf.goal import BoundTarget, Requirements
from mlflow_cf.goal.requirements import MARGIN, rate_all
from mlflow_cf.model.judge import Label, Outcome
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.plan import Plan
from mlflow_cf.policy import Target
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.problem.binding import admissible, same
from mlflow_cf.words.result import Change
from mlflow_cf.words.verification import ConstraintCheck, Verification, Verifications


def verify_given(
    requirements: Requirements,
    bound_policy: BoundPolicy,
    target: Target,
    rows: Rows,
    counterfactuals: Rows,
    *,
    minimality: bool,
) -> Verifications:
    """Verify counterfactuals in pairs with the rows they are for.

    Args:
        requirements: the model, and what else must hold beside `target` and the constraints of `bound_policy`.
        bound_policy, target: see there.
        rows: (m, d), or one for all; counterfactuals: (m, d).
        minimality: whether to find out which changes are needless; costs one row per changed group.

    Raises:
        InputError: no tables, a missing column, or rows that do not go together in pairs.
    """
    rows, found = (
        _table(bound_policy.space, rows, "rows"),
        _table(bound_policy.space, counterfactuals, "counterfactuals"),
    )
    if len(rows) not in (1, len(found)):
        fact = f"{len(found)} for {len(rows)} rows"
        raise InputError("counterfactuals", fact, "give one for every row, or a single row for all of them")
    rows = rows.iloc[np.zeros(len(found), dtype=np.intp)] if len(rows) == 1 else rows
    space = bound_policy.space.covering(rows).covering(found)
    X, faults = space.encode_rows(rows)
    Z, more = space.encode_rows(found)
    faults = {**{at: f"counterfactual: {fault}" for at, fault in more.items()},
              **{at: f"row: {fault}" for at, fault in faults.items()}}  # fmt: skip
    good = np.array([at for at in range(len(found)) if at not in faults], dtype=np.intp)
    pairs = _Pairs(requirements, bound_policy.covering(space), target, space, X[good], Z[good])
    verified = dict(zip(good.tolist(), pairs.verified(minimality=minimality), strict=True))
    return Verifications(verified.get(at) or Verification(faults[at]) for at in range(len(found)))


def _table(space: FeatureSpace, given: Rows, path: str) -> pd.DataFrame:
    frame = as_rows(given, space.columns, path)
    for column, name in zip(space.columns, space.names, strict=True):
        if column not in frame.columns:
            known = [str(other) for other in frame.columns if other not in space.columns]
            raise InputError(f"{path}.{name}", "column is missing", did_you_mean(name, known, "other columns"))
    return space.select(frame).reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Rows X (m, d) and their counterfactuals Z (m, d), coded by `space`; `bound_policy` covers it."""

    requirements: Requirements
    bound_policy: BoundPolicy
    target: Target
    space: FeatureSpace
    X: Floats
    Z: Floats

    def verified(self, *, minimality: bool) -> Iterator[Verification]:
        """Yield one verification per pair."""
        own, said = self._asked(self.X) if self.target.differs else [None] * len(self.X), self._asked(self.Z)
        checks = {origin: self._holds(origin) for origin in self._origins}
        offered = {columns: self._offered(number) for number, columns in enumerate(self._columns)}
        for at, (row, prediction) in enumerate(zip(own, said, strict=True)):
            if isinstance(row, str) or isinstance(prediction, str):
                yield Verification(f"row: {row}" if isinstance(row, str) else f"counterfactual: {prediction}")
                continue
            label, outcome = prediction
            target = BoundTarget(
                self.target, self.requirements.judge.model, -1 if row is None else int(row[1].codes[0])
            )
            targets = self.requirements.targets(target)
            yield Verification(
                prediction=label,
                probability=target.probability(outcome)[0],
                valid=bool(target.met(outcome)[0]),
                constraints=tuple(self._check(origin, at, holds=bool(held[at])) for origin, held in checks.items()),
                requirements=dict(self._required(targets, outcome)),
                admissible={self.space.names[c]: bool(may[at]) for columns, may in offered.items() for c in columns},
                distance=float(self._distance(at)),
                n_changed=int(self._differs[at].sum()),
                needless=self._needless(at, targets) if minimality else None,
            )

    @cached_property
    def _differs(self) -> Bools:
        return differing(self.Z, self.X)

    @cached_property
    def _columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(domain.columns for domain in self.bound_policy.domains)

    def _distance(self, at: int) -> float:
        metric = self.bound_policy.bound_distance
        return float(metric.distance(self._columns, self.Z[at : at + 1], self.X[at])[0])

    def _asked(self, rows: Floats) -> list[tuple[Label, Outcome] | str]:
        """Return what the model says of rows (m, d); a row that makes it fail gets the reason instead."""
        if not len(rows):
            return []
        try:
            table = self.space.decode(rows)
            labels, outcome = self.requirements.judge.predict(table)
            further = tuple(one.judge.verdict(table) for one in self.requirements.further)
        except Exception as error:  # noqa: BLE001  any model, any error; the message may quote the row
            if len(rows) > 1:
                return [said for row in rows for said in self._asked(row[None])]
            return [f"the model cannot predict it ({type(error).__name__})"]
        outcome = replace(outcome, further=further)
        return [(label, outcome.take(np.array([at]))) for at, label in enumerate(labels)]

    @cached_property
    def _origins(self) -> Mapping[Origin, frozenset[int]]:
        """Every constraint, and the columns it is about."""
        about: dict[Origin, frozenset[int]] = {}
        for rule in self.bound_policy.all_rules:
            columns = rule.columns("x_cf") | rule.columns("x")
            about[rule.origin] = about.get(rule.origin, frozenset()) | columns
        return {**about, **{group.origin: frozenset(group.columns) for group in self.bound_policy.joined}}

    def _holds(self, origin: Origin) -> Bools:
        """Return (m,) whether the pairs meet a constraint."""
        for group in self.bound_policy.joined:
            if group.origin == origin:
                return self._offered(self._columns.index(group.columns))
        rules = [rule for rule in self.bound_policy.all_rules if rule.origin == origin]
        held: Bools = np.logical_and.reduce([rule.holds(self.Z, self.X) for rule in rules])
        return held

    def _offered(self, number: int) -> Bools:
        """Return (m,) whether the values of a group may be proposed, or are the row's own."""
        domain = self.bound_policy.domains[number]
        columns = list(domain.columns)
        changed: Bools = np.any(self._differs[:, columns], axis=1)
        return ~changed | admissible(domain, self.Z[:, columns], self.X[:, columns])

    def _check(self, origin: Origin, at: int, *, holds: bool) -> ConstraintCheck:
        if holds:
            return ConstraintCheck(origin.path, holds=True)
        columns = sorted(self._origins[origin])
        if origin.key == "max_changes":
            columns = [column for column in columns if self._differs[at, column]]
        old, new = self.space.values(self.X[at]), self.space.values(self.Z[at])
        names = [self.space.names[column] for column in columns]
        return ConstraintCheck(origin.path, False, tuple(Change(name, old[name], new[name]) for name in names))

    def _required(self, targets: Sequence[BoundTarget], outcome: Outcome) -> Iterator[tuple[str, bool]]:
        """Yield the path of every further requirement, and whether a row with this outcome meets it."""
        if self.requirements.margin:
            yield MARGIN.path, bool(targets[0].met(outcome)[0])
        for one, target, said in zip(self.requirements.further, targets[1:], outcome.further, strict=True):
            yield one.origin.path, bool(target.met(said)[0])

    def _needless(self, at: int, targets: Sequence[BoundTarget]) -> tuple[tuple[str, ...], ...]:
        """Return the changed groups that can be put back alone, something else still being changed."""
        changed = [columns for columns in self._columns if self._differs[at, columns].any()]
        if len(changed) < 2:
            return ()
        variants = np.tile(self.Z[at], (len(changed), 1))
        for variant, columns in zip(variants, changed, strict=True):
            variant[list(columns)] = self.X[at, columns]
        lawful: Codes = np.flatnonzero(self.bound_policy.accepts(variants, self.X[at]))
        needless = []
        for position, said in zip(lawful.tolist(), self._asked(variants[lawful]), strict=True):
            if not isinstance(said, str) and rate_all(targets, said[1]).favourable[0]:
                needless.append(tuple(self.space.names[column] for column in changed[position]))
        return tuple(needless)


ROUNDING: Final = 1e-4  # of efforts: explainers may round them


def leading_plans(x0: Floats, rows: Floats, plans: Sequence[Plan], costs: Floats) -> tuple[Bools, Bools, Bools]:
    """Return three masks (m,) of plans: those of the first come first, then those of the second and of the third.

    First those that are cheaper than every plan of no more steps; then those that no other one beats in cost, number
    of steps and number of changed features; then the cheapest of every number of steps. Otherwise a cheap plan of few
    steps hides behind one of more steps that changes the same features.

    Args:
        x0: (d,) where they start.
        rows: (m, d) where they end.
        plans: the plans, the cheapest first.
        costs: (m,) what they cost.
    """
    steps = np.array([len(plan) for plan in plans], dtype=np.intp)
    changed = differing(rows, x0).sum(axis=1)
    cheapest = np.zeros(len(plans), dtype=np.bool_)
    cheapest[np.unique(steps, return_index=True)[1]] = True
    shorter = steps < np.minimum.accumulate(np.append(np.inf, steps))[:-1]
    front = moocore.is_nondominated(np.column_stack([costs, steps, changed])) if len(plans) else cheapest
    return shorter, front, cheapest


def check_plans(action_model: ActionModel | None, x0: Floats, plans: Sequence[Plan]) -> None:
    """Refuse plans from x0 (d,) whose steps are not those of their course; of plans without one, nothing is known.

    Raises:
        ValueError: an action that is unknown, done twice or not possible, or other facts than a plan says.
    """
    if action_model is not None:
        for plan in plans:
            _check(action_model, x0, plan)


def _check(action_model: ActionModel, x0: Floats, plan: Plan) -> None:
    numbers = {action.name: number for number, action in enumerate(action_model.actions)}
    state = x0
    for place, step in enumerate(plan, start=1):
        number = numbers.pop(step.action, None)
        if number is None:
            raise ValueError(f"step {place} of a plan is no action, or is done twice")
        action = action_model.actions[number]
        outcome = step.row[[action.column]]
        done = action_model.step(number, state[None], outcome)
        allowed = action.allows(
            state[None], outcome, float(action_model.least_changes[action.column]) + _grid(action_model, number)
        )
        if not (done.valid[0] and allowed[0] and same(done.states, step.row).all()):
            raise ValueError(f"step {place} of a plan cannot be done")
        if abs(done.effort[0] - step.effort) > ROUNDING or abs(done.discount[0] - step.discount) > ROUNDING:
            raise ValueError(f"step {place} of a plan costs something else")
        state = step.row


def _grid(action_model: ActionModel, number: int) -> float:
    """Return how far rounding to a grid may lead a number beyond its range."""
    step = action_model.space.features[action_model.actions[number].column].step
    return 0.0 if step is None else step / 2
