"""Verification of given counterfactuals: the prediction of each, and every constraint by name; or of many as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from mlflow_cf.proof.verify import joined_outcomes
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
    pairs, told, good = _paired(requirements, bound_policy, target, rows, counterfactuals)
    verified = dict(zip(good.tolist(), pairs.verified(minimality=minimality), strict=True))
    return Verifications(verified.get(at) or Verification(told[at]) for at in range(len(good) + len(told)))


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What verification says of many pairs, as arrays (m,); where nothing can be said of one, all are False.

    Attributes:
        valid: which predictions meet the target.
        lawful: which pairs meet every constraint, and have values alone that may be proposed.
        required: which meet all further requirements.
        changed: in which anything differs.
    """

    valid: Bools
    lawful: Bools
    required: Bools
    changed: Bools

    @property
    def ok(self) -> Bools:
        """(m,) which are counterfactuals, as `Verification.ok` says."""
        return self.valid & self.lawful & self.required & self.changed


def verdicts_on(
    requirements: Requirements, bound_policy: BoundPolicy, target: Target, rows: Rows, counterfactuals: Rows
) -> Verdicts:
    """Verify as `verify_given` does, without names and numbers: a tenth of the time for many pairs.

    Raises:
        InputError: as there.
    """
    pairs, told, good = _paired(requirements, bound_policy, target, rows, counterfactuals)
    found = []
    for part in pairs.verdicts():
        found.append(np.zeros(len(good) + len(told), dtype=np.bool_))
        found[-1][good] = part
    return Verdicts(*found)


def _paired(
    requirements: Requirements, bound_policy: BoundPolicy, target: Target, rows: Rows, counterfactuals: Rows
) -> tuple[_Pairs, dict[int, str], Codes]:
    """Return the pairs that can be coded; why others cannot, by their number; and the numbers of the former."""
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
    return _Pairs(requirements, bound_policy.covering(space), target, space, X[good], Z[good]), told, good


def _table(space: FeatureSpace, given: Rows, path: str) -> pd.DataFrame:
    frame = as_rows(given, space.columns, path)
    for column, name in zip(space.columns, space.names, strict=True):
        if column not in frame.columns:
            known = [str(other) for other in frame.columns if other not in space.columns]
            raise InputError(f"{path}.{name}", "column is missing", did_you_mean(name, known, "other columns"))
    return space.select(frame).reset_index(drop=True)


def _unverified(which: str, fault: str | UnavailableError) -> Verification:
    """Return that the row or the counterfactual of a pair could not be predicted."""
    return Verification(f"{which}: {fault}", isinstance(fault, UnavailableError))


@dataclass(frozen=True, eq=False)
class _Said:
    """What the model says of rows (m, d).

    Attributes:
        labels, outcome: of those that it can predict.
        place: (m,) where each row stands among them; -1: it cannot be predicted.
        faults: why not, by the number of the row.
    """

    labels: list[Label]
    outcome: Outcome
    place: Codes
    faults: Mapping[int, str | UnavailableError]


@dataclass(frozen=True, eq=False)
class _Decided:
    """What the target and all further requirements say of the predictions of pairs (m,).

    Attributes:
        valid: which meet the target; probability: of the wanted label.
        required: which meet each further requirement, by its path.
        targets: what is wanted, by the label of the row as a position among the classes.
    """

    valid: Bools
    probability: list[float | None]
    required: dict[str, Bools] = field(default_factory=dict)
    targets: dict[int, tuple[BoundTarget, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Rows X (m, d) and their counterfactuals Z (m, d), coded by `space`; `bound_policy` covers it."""

    requirements: Requirements
    bound_policy: BoundPolicy
    target: Target
    space: FeatureSpace
    X: Floats
    Z: Floats

    def verdicts(self) -> tuple[Bools, Bools, Bools, Bools]:
        """Return the parts of `Verdicts`."""
        read, decided = self._read, self._decided
        lawful = [self._holds(origin) for origin in self._origins]
        lawful += [self._offered(number) for number in range(len(self._columns))]
        required = np.logical_and.reduce([read, *decided.required.values()])
        changed = np.asarray(self._differs.any(axis=1))
        return decided.valid, np.logical_and.reduce([read, *lawful]), required, changed & read

    def verified(self, *, minimality: bool) -> Iterator[Verification]:
        """Yield one verification per pair."""
        own, said, decided = self._own, self._said, self._decided
        distance = self.bound_policy.bound_distance.distance
        checks = {origin: self._holds(origin) for origin in self._origins}
        offered = {columns: self._offered(number) for number, columns in enumerate(self._columns)}
        for at in range(len(self.Z)):
            if own is not None and at in own.faults:
                yield _unverified("row", own.faults[at])
                continue
            if at in said.faults:
                yield _unverified("counterfactual", said.faults[at])
                continue
            yield Verification(
                prediction=said.labels[said.place[at]],
                probability=decided.probability[at],
                valid=bool(decided.valid[at]),
                constraints=tuple(self._check(origin, at, holds=bool(held[at])) for origin, held in checks.items()),
                requirements={path: bool(met[at]) for path, met in decided.required.items()},
                admissible={self.space.names[c]: bool(may[at]) for columns, may in offered.items() for c in columns},
                distance=float(distance(self._columns, self.Z[at : at + 1], self.X[at])[0]),
                n_changed=int(self._differs[at].sum()),
                needless=self._needless(at, decided.targets[int(self._labels[at])]) if minimality else None,
            )

    @cached_property
    def _own(self) -> _Said | None:
        """What the model says of the rows, where that decides what is wanted."""
        return self._asked(self.X) if self.target.differs else None

    @cached_property
    def _said(self) -> _Said:
        return self._asked(self.Z)

    @cached_property
    def _read(self) -> Bools:
        """(m,) which pairs the model can predict as far as it has to."""
        read: Bools = self._said.place >= 0
        return read if self._own is None else read & (self._own.place >= 0)

    @cached_property
    def _labels(self) -> Codes:
        """(m,) the labels of the rows, as positions among the classes; -1 where nothing depends on them."""
        if self._own is None:
            return np.full(len(self.X), -1, dtype=np.intp)
        return np.append(self._own.outcome.codes, -1)[self._own.place]

    @cached_property
    def _decided(self) -> _Decided:
        m, judge = len(self.Z), self.requirements.judge
        found = _Decided(np.zeros(m, dtype=np.bool_), [None] * m)
        for label in np.unique(self._labels[self._read]).tolist():
            some = np.flatnonzero(self._read & (self._labels == label))
            outcome = self._said.outcome.take(self._said.place[some])
            target = BoundTarget(self.target, judge.model, label)
            found.targets[label] = targets = self.requirements.targets(target)
            found.valid[some] = target.met(outcome)
            for at, probability in zip(some.tolist(), target.probability(outcome), strict=True):
                found.probability[at] = probability
            met = {MARGIN.path: targets[0].met(outcome)} if self.requirements.margin else {}
            for one, wanted, further in zip(self.requirements.further, targets[1:], outcome.further, strict=True):
                met[one.origin.path] = wanted.met(further)
            for path, own in met.items():
                found.required.setdefault(path, np.zeros(m, dtype=np.bool_))[some] = own
        return found

    @cached_property
    def _differs(self) -> Bools:
        return differing(self.Z, self.X)

    @cached_property
    def _columns(self) -> tuple[tuple[int, ...], ...]:
        return tuple(domain.columns for domain in self.bound_policy.domains)

    def _asked(self, rows: Floats) -> _Said:
        """Return what the model says of rows (m, d); those together with which it fails are asked about one by one.

        A row that makes it fail, or that cannot be sent, gets the reason.
        """
        labels: list[Label] = []
        outcomes: list[Outcome] = []
        place, faults = np.full(len(rows), -1, dtype=np.intp), dict[int, str | UnavailableError]()
        waiting = [np.arange(len(rows))] if len(rows) else []
        while waiting:
            some = waiting.pop(0)
            try:
                table = self.space.decode(rows[some])
                own, outcome = self.requirements.judge.predict(table)
                further = tuple(one.judge.verdict(table) for one in self.requirements.further)
            except UnavailableError as error:
                faults |= dict.fromkeys(some.tolist(), error)
                continue
            except Exception as error:  # noqa: BLE001  any model, any error; the message may quote the row
                if len(some) > 1:
                    waiting += np.split(some, len(some))
                else:
                    faults[int(some[0])] = f"the model cannot predict it ({type(error).__name__})"
                continue
            place[some] = np.arange(len(labels), len(labels) + len(some))
            labels += own
            outcomes.append(replace(outcome, further=further))
        return _Said(labels, joined_outcomes(outcomes) if outcomes else Outcome(np.empty(0, np.intp)), place, faults)

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
        said, needless = self._asked(variants[lawful]), []
        if any(isinstance(fault, UnavailableError) for fault in said.faults.values()):
            return None
        for position, place in zip(lawful.tolist(), said.place.tolist(), strict=True):
            if place >= 0 and rate_all(targets, said.outcome.take(np.array([place]))).favourable[0]:
                needless.append(tuple(self.space.names[column] for column in changed[position]))
        return tuple(needless)
