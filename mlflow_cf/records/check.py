"""The check of a record: digests, the logged model asked again, every constraint, and proofs made another way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.policy import Query
from mlflow_cf.records.document import (
    Record,
    RecordedCounterfactual,
    RecordedSide,
    RecordSource,
    is_edited,
    read_document,
    read_record,
)
from mlflow_cf.records.enumerate import every_candidate
from mlflow_cf.records.make import Explains, model_digest, policy_digest, row_values
from mlflow_cf.records.regions import corners, is_inside
from mlflow_cf.records.result import BROKEN, OK, OPEN, Check, Checks
from mlflow_cf.words.changes import changes_between
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.verification import Verification

TIME_LIMIT_S: Final = 30.0
NEAR: Final = 1e-9  # by which two computations of a distance may differ
_FOR_SEARCH: Final = ("region", "levers", "responsiveness", "record", "why_not")  # nothing that proofs need


def check_record(explained: Explains, source: RecordSource, time_limit_s: float = TIME_LIMIT_S) -> Checks:
    """Check what a record claims against a model.

    Args:
        explained: the model that answered, or another version of it.
        source: the record: a dict, a JSON text, or the path of a file.
        time_limit_s: seconds for the search that proves again.

    Raises:
        InputError: no record, one of a newer schema version, or one of other features.
    """
    document = read_document(source)
    if "sha256" in document and is_edited(document):
        return Checks((Check("content", BROKEN, "the record was edited: its digest is of another content"),))
    record = read_record(document)
    _check_features(explained.space, record)
    query, table = Query.read(record.query), _table(explained.space, record)
    return Checks(tuple(_Checking(explained, record, query, table, time_limit_s).all()))


def _table(space: FeatureSpace, record: Record) -> pd.DataFrame:
    """Return the raw row (1, d) of a record, which must be what the features can hold."""
    row = dict(record.row)
    table = space.from_values([row])
    if row_values(space, table, "record.row") != row:
        raise InputError("record.row", "has values that do not fit the features", "pass the model that answered")
    return table


def _check_features(space: FeatureSpace, record: Record) -> None:
    rows = {"record.row": record.row}
    for number, found in enumerate(record.answer.counterfactuals):
        rows[f"record.answer.counterfactuals[{number}].row"] = found.row
    for path, row in rows.items():
        for name in row:
            if name not in space.names:
                raise InputError(f"{path}.{name}", "is no feature of the model", did_you_mean(name, space.names))
        for name in space.names:
            if name not in row:
                raise InputError(f"{path}.{name}", "is missing", "pass the model that answered")


@dataclass(frozen=True, eq=False)
class _Checking:
    """The check of one record.

    Attributes:
        explained: the model; record: what is claimed of it.
        query: what was asked; table: (1, d) the raw row.
        time_limit_s: seconds for the search that proves again.
    """

    explained: Explains
    record: Record
    query: Query
    table: pd.DataFrame
    time_limit_s: float

    def all(self) -> Iterator[Check]:
        """Yield all checks, the quick ones first."""
        yield Check("content", OK, f"as it was written by mlflow-cf {self.record.mlflow_cf}")
        explained, record = self.explained, self.record
        ours = model_digest(explained.space, explained.model, explained.outcome)
        yield _same("model", record.model_sha256, ours)
        yield _same("policy", record.policy_sha256, policy_digest(explained.policy))
        yield self._row()
        for number, found in enumerate(record.answer.counterfactuals, start=1):
            yield from self._counterfactual(number, found)
        if record.proof.status in ("already", "infeasible", "found"):
            yield from self._proof()

    def _row(self) -> Check:
        """Ask the model about the row again."""
        answer = self.record.answer
        try:
            labels, _ = self.explained.judge.predict(self.table)
        except UnavailableError as error:
            return Check("row: prediction", OPEN, str(error))
        except Exception as error:  # noqa: BLE001  any model, any error
            return Check("row: prediction", BROKEN, f"the model cannot predict it ({type(error).__name__})")
        return self._prediction("row: prediction", answer.prediction, labels[0])

    def _prediction(self, what: str, then: object, now: object) -> Check:
        if _near(then, now, self.explained.model.tolerance):
            return Check(what, OK, f"{now}")
        return Check(what, BROKEN, f"was {then}, is {now}")

    def _options(self, rung: int | None) -> dict[str, Any]:
        """Return what `verify` is asked for beside the policy."""
        query = self.query
        return {
            "target": self._target(rung),
            "constraints": query.constraints,
            "robust_to": query.robust_to or None,
            "plausible": self.record.query.get("plausible"),
            "survival": self.record.query.get("survival"),
            "margin": query.margin,
        }

    def _target(self, rung: int | None) -> Any:
        target = self.record.query.get("target")
        if rung is None:
            return target
        whole = self.explained.policy.target_for(self.query.target, self.explained.model, owner=True)
        if not rung <= len(whole.rungs):
            raise InputError("record.answer", f"rung {rung} is none of the ladder", "pass the record as it was written")
        return whole.rungs[rung - 1].to_dict()

    def _counterfactual(self, number: int, found: RecordedCounterfactual) -> Iterator[Check]:
        """Yield what the model and every constraint say of a counterfactual now."""
        name, space = f"counterfactual {number}", self.explained.space
        now = self.explained.verify(
            self.table, space.from_values([dict(found.row)]), minimality=False, **self._options(found.rung)
        )[0]
        if now.fault:
            yield Check(name, OPEN if now.unanswered else BROKEN, now.fault)
            return
        yield self._prediction(f"{name}: prediction", found.prediction, now.prediction)
        if found.probability is not None:
            yield self._prediction(f"{name}: probability", found.probability, now.probability)
        yield Check(f"{name}: target", OK if now.valid else BROKEN, "met" if now.valid else "not met")
        changes = [change.to_dict() for change in changes_between(self.record.row, found.row)]
        same = changes == [change.model_dump(by_alias=True) for change in found.changes]
        yield Check(f"{name}: changes", OK if same else BROKEN, "" if same else "are not those between the rows")
        yield self._prediction(f"{name}: distance", found.distance, now.distance)
        yield from _constraints(name, now)
        if found.region:
            yield self._region(number, found, found.region)

    def _region(self, number: int, found: RecordedCounterfactual, sides: Sequence[RecordedSide]) -> Check:
        """Ask the model about the corners of a region, then prove one around the answer again."""
        what, space = f"counterfactual {number}: region", self.explained.space
        rows = space.from_values(list(corners(space, found.row, sides)))
        for one in self.explained.verify(self.table, rows, minimality=False, **self._options(found.rung)):
            if one.unanswered:
                return Check(what, OPEN, one.fault)
            if not (one.valid and not one.fault and not one.broken and not one.unmet):
                return Check(what, BROKEN, "a corner of it is no counterfactual now")
        if isinstance(self._again, str):
            return Check(what, OPEN, self._again)
        for again in self._again.counterfactuals:
            if dict(again.row) == found.row and again.region is not None:
                inside = is_inside(space, found.row, sides, again.region)
                reason = "proved again" if inside else "its corners hold, but a part of it is not proved now"
                return Check(what, OK if inside else OPEN, reason)
        return Check(what, OPEN, "its corners hold, but the fresh search has found another answer")

    @cached_property
    def _again(self) -> Explanation | str:
        """Returns the answer of a fresh search by another engine with another seed, or why there is none."""
        record = self.record
        query = {key: value for key, value in record.query.items() if key not in _FOR_SEARCH}
        if any(found.region is not None for found in record.answer.counterfactuals):
            query["region"] = record.query["region"]
        query |= {"explainer": self._other_way, "seed": (record.seed + 1) % 2**63, "certify": True, "explain": "all"}
        query.pop("max_evaluations", None)
        limits = self.explained.policy.limits
        seconds = min(self.time_limit_s, limits.time_limit_s) if record.served else self.time_limit_s
        query["time_limit_s"] = seconds
        try:
            if record.served:
                return self.explained.request(self.table, {"counterfactual": query})[0]
            return self.explained.explain(self.table, **query)[0]
        except InputError as error:
            return f"a fresh search is refused ({error.message})"

    @property
    def _other_way(self) -> str:
        """The explainer of the fresh search: another than the record's, unless requests may ask for no other."""
        own, way = self.explained.context.searches.own.explainer.name, self.record.proof.way
        for name in ("exact", "geco"):
            with suppress(InputError):
                if self.record.served:
                    self.explained.policy.privacy.check_asked(name, own)
                if name != way:
                    return name
        return own

    def _proof(self) -> Iterator[Check]:
        """Yield whether what was proved is proved again."""
        record = self.record
        answers = record.answer.counterfactuals
        if record.proof.status == "already":
            now = self._status_now()
            verdict = {"already": OK, "budget": OPEN}.get(now, BROKEN)
            yield Check("proof: the row meets the target", verdict, f"status is {now}")
            return
        if record.proof.status == "infeasible":
            yield self._infeasible()
            return
        for number, found in enumerate(answers):
            if found.proof != "none" and found.bound is not None:
                yield self._bound(number, found, found.bound)

    def _status_now(self) -> str:
        query = {key: self.record.query[key] for key in ("target", "constraints") if key in self.record.query}
        return self.explained.explain(self.table, **query, time_limit_s=self.time_limit_s)[0].status

    @cached_property
    def _listed(self) -> list[float] | None:
        """Returns the distances of all counterfactuals, ascending; None: too many to list, or not answered."""
        if self.query.target is not None and getattr(self.query.target, "ladder", None):
            return None
        rows = every_candidate(self.explained.context, self.query, self.table, served=self.record.served)
        if rows is None:
            return None
        if not len(rows):
            return []
        found = self.explained.verify(self.table, rows, minimality=False, **self._options(None))
        if any(one.unanswered for one in found):
            return None
        return sorted(one.distance for one in found if one.ok and one.distance is not None)

    def _infeasible(self) -> Check:
        what = "proof: there is no counterfactual"
        if self._listed is not None:
            found = self._listed
            return Check(what, BROKEN if found else OK, "there is one" if found else "all candidates were tried")
        again = self._again
        if isinstance(again, str):
            return Check(what, OPEN, again)
        if again.counterfactuals:
            return Check(what, BROKEN, f"there is one: {again.counterfactuals[0].text}")
        if again.status == "infeasible":
            return Check(what, OK, f"proved again by {again.explainer}")
        return Check(what, OPEN, again.reason or again.status)

    def _bound(self, number: int, found: RecordedCounterfactual, bound: float) -> Check:
        """Check that nothing is nearer than the bound."""
        what = f"counterfactual {number + 1}: nothing is nearer than {bound:.6g}"
        tolerance = NEAR + self.explained.model.tolerance * abs(bound)
        if self._listed is not None and len(self.record.answer.counterfactuals) == 1:
            nearest = self._listed[0] if self._listed else math.inf
            if nearest < bound - tolerance:
                return Check(what, BROKEN, f"one is at {nearest:.6g}")
            return Check(what, OK, "all candidates were tried")
        if isinstance(self._again, str):
            return Check(what, OPEN, self._again)
        return _nearest(what, self._again, number, found.rung, bound - tolerance)


def _nearest(what: str, again: Explanation, number: int, rung: int | None, least: float) -> Check:
    """Compare a fresh answer with what was proved of the one at the same place: nothing is nearer than `least`."""
    same = [one for one in again.counterfactuals if one.rung == rung]
    place = number if rung is None else 0
    if place >= len(same):
        return Check(what, OPEN, again.reason or f"a fresh search ended with {again.status}")
    one = same[place]
    if one.distance < least:
        return Check(what, BROKEN, f"one is at {one.distance:.6g}: {one.text}")
    if one.bound is not None and one.bound >= least:
        return Check(what, OK, f"proved again by {again.explainer} with another seed")
    return Check(what, OPEN, again.reason or "a fresh search found nothing nearer, but has no such proof")


def _constraints(name: str, now: Verification) -> Iterator[Check]:
    for check in now.constraints:
        told = ", ".join(f"{value.feature} {value.old} -> {value.new}" for value in check.values)
        yield Check(f"{name}: {check.path}", OK if check.holds else BROKEN, told)
    for path, met in now.requirements.items():
        yield Check(f"{name}: {path}", OK if met else BROKEN, "" if met else "not met")
    odd = ", ".join(now.inadmissible)
    yield Check(f"{name}: values", BROKEN if odd else OK, f"may not be proposed: {odd}" if odd else "may be proposed")


def _same(what: str, then: str, now: str) -> Check:
    if then == now:
        return Check(what, OK, f"sha256 {now[:12]}...")
    return Check(what, BROKEN, f"another one: sha256 was {then[:12]}..., is {now[:12]}...")


def _near(then: object, now: object, tolerance: float) -> bool:
    """Whether two values are the same, numbers up to a tolerance."""
    if isinstance(then, bool) or isinstance(now, bool) or not isinstance(then, int | float):
        return then == now and isinstance(then, bool) == isinstance(now, bool)
    return isinstance(now, int | float) and math.isclose(then, now, rel_tol=max(tolerance, NEAR), abs_tol=tolerance)
