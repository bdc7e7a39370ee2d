"""Verification of given counterfactuals: the prediction of each, and every constraint by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.policy import Target
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.problem.binding import admissible
from mlflow_cf.words.changes import Change
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
    rows = _table(bound_policy.space, rows, "rows")
    found = _table(bound_policy.space, counterfactuals, "counterfactuals")
    if len(rows) not in (1, len(found)):
        fact = f"{len(found)} for {len(rows)} rows"
        raise InputError("counterfactuals", fact, "give one for every row, or a single row for all of them")
    rows = rows.iloc[np.zeros(len(found), dtype=np.intp)] if len(rows) == 1 else rows
    space = bound_policy.space.covering(rows).covering(found)
    X, faults = space.encode_rows(rows)
    Z, more = space.encode_rows(found)
    told = {**{at: f"counterfactual: {fault}" for at, fault in more.items()},
            **{at: f"row: {fault}" for at, fault in faults.items()}}  # fmt: skip
    good = np.array([at for at in range(len(found)) if at not in told], dtype=np.intp)
    pairs = _Pairs(requirements, bound_policy.covering(space), target, space, X[good], Z[good])
    verified = dict(zip(good.tolist(), pairs.verified(minimality=minimality), strict=True))
    return Verifications(verified.get(at) or Verification(told[at]) for at in range(len(found)))


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
        distance = self.bound_policy.bound_distance.distance
        checks = {origin: self._holds(origin) for origin in self._origins}
        offered = {columns: self._offered(number) for number, columns in enumerate(self._columns)}
        for at, (row, prediction) in enumerate(zip(own, said, strict=True)):
            if isinstance(row, str | UnavailableError):
                yield Verification(f"row: {row}", isinstance(row, UnavailableError))
                continue
            if isinstance(prediction, str | UnavailableError):
                yield Verification(f"counterfactual: {prediction}", isinstance(prediction, UnavailableError))
                continue
            label, outcome = prediction
            place = -1 if row is None else int(row[1].codes[0])
            target = BoundTarget(self.target, self.requirements.judge.model, place)
            targets = self.requirements.targets(target)
            required = {MARGIN.path: bool(targets[0].met(outcome)[0])} if self.requirements.margin else {}
            for one, wanted, further in zip(self.requirements.further, targets[1:], outcome.further, strict=True):
                required[one.origin.path] = bool(wanted.met(further)[0])
            yield Verification(
                prediction=label,
                probability=target.probability(outcome)[0],
                valid=bool(target.met(outcome)[0]),
                constraints=tuple(self._check(origin, at, holds=bool(held[at])) for origin, held in checks.items()),
                requirements=required,
                admissible={self.space.names[c]: bool(may[at]) for columns, may in offered.items() for c in columns},
                distance=float(distance(self._columns, self.Z[at : at + 1], self.X[at])[0]),
                n_changed=int(self._differs[at].sum()),
                needless=self._needless(at, targets) if minimality else None,
            )

    @cached_property
    def _differs(self) -> Bools:
        return differing(self.Z, self.X)

    @cached_property
    def _columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(domain.columns for domain in self.bound_policy.domains)

    def _asked(self, rows: Floats) -> list[tuple[Label, Outcome] | str | UnavailableError]:
        """Return what the model says of rows (m, d); a row that makes it fail, or cannot be sent, gets the reason."""
        if not len(rows):
            return []
        try:
            table = self.space.decode(rows)
            labels, outcome = self.requirements.judge.predict(table)
            further = tuple(one.judge.verdict(table) for one in self.requirements.further)
        except UnavailableError as error:
            return [error] * len(rows)
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

    def _needless(self, at: int, targets: Sequence[BoundTarget]) -> tuple[tuple[str, ...], ...] | None:
        """Return the changed groups that can be put back alone, something else still being changed; None: unknown."""
        changed = [columns for columns in self._columns if self._differs[at, columns].any()]
        if len(changed) < 2:
            return ()
        variants = np.tile(self.Z[at], (len(changed), 1))
        for variant, columns in zip(variants, changed, strict=True):
            variant[list(columns)] = self.X[at, columns]
        lawful: Codes = np.flatnonzero(self.bound_policy.accepts(variants, self.X[at]))
        needless = []
        for position, said in zip(lawful.tolist(), self._asked(variants[lawful]), strict=True):
            if isinstance(said, UnavailableError):
                return None
            if not isinstance(said, str) and rate_all(targets, said[1]).favourable[0]:
                needless.append(tuple(self.space.names[column] for column in changed[position]))
        return tuple(needless)
