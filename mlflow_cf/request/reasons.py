"""Reasons of the rows of a request: exact ones before the search, sampled ones with what it leaves of the limits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.features import FeatureSpace, Rows
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.policy import Query, Target
from mlflow_cf.policy.reasons import ReasonOptions, ReferenceName
from mlflow_cf.reasons.reasoning import DecidedRow, Effort, Reasoning
from mlflow_cf.reasons.reference import Reference
from mlflow_cf.request.context import RequestContext
from mlflow_cf.request.request import Caller, Request, asking, beside_answers, is_wanted
from mlflow_cf.request.rows import CodedRows, Row, read_rows
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.factors import Reasons
from mlflow_cf.words.languages import reasons_in
from mlflow_cf.words.reasons import stopped
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import say

ALREADY: Final = Reasons("already", reason=say("decided_already"))
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ReasonRequest:
    """What a request asks about the reasons of its rows.

    Attributes:
        request: with its constraints, which reasons leave out of account; space: covers its rows.
        reasoning: what reasons of all rows share; options: what is asked of them.
        own_reference: the row to compare with, instead of the one that the options name.
    """

    request: Request
    space: FeatureSpace
    reasoning: Reasoning
    options: ReasonOptions
    own_reference: Reference | None = None

    @classmethod
    def of(cls, request: Request, space: FeatureSpace) -> ReasonRequest | None:
        """Return what is asked; None: nothing."""
        asked = request.query.reasons
        if not asked or request.reasoning is None:
            return None
        return cls(request, space, request.reasoning, asked if isinstance(asked, ReasonOptions) else ReasonOptions())

    def exact(self, rows: Mapping[int, Row]) -> dict[int, Reasons]:
        """Return the exact reasons of those refused rows, by number, that have them, while there is time."""
        found: dict[int, Reasons] = {}
        for number, row in rows.items():
            self.request.admission.give_way()
            if self._late():
                break
            try:
                told = self._exact(row)
            except Exception as error:  # noqa: BLE001  whatever goes wrong, the answer still leaves
                told = _failed(error)
            if told is not None:
                found[number] = told
        return found

    def told(
        self, rows: Mapping[int, Row], explained: Mapping[int, Explanation], exact: Mapping[int, Reasons]
    ) -> dict[int, Explanation]:
        """Return explanations of refused rows with their reasons, of which the `exact` ones are known."""
        found = {}
        for number, before in explained.items():
            if number in exact:
                found[number] = replace(before, reasons=exact[number])
                continue
            self.request.admission.give_way()
            left = self.request.left(before.evaluations)
            try:
                reasons, used = self._sampled(rows[number], left)
            except Exception as error:  # noqa: BLE001  see above
                reasons, used = _failed(error), 0
            found[number] = replace(before, reasons=reasons, evaluations=before.evaluations + used)
        return found

    def of_row(self, row: Row) -> Reasons:
        """Return the reasons of a single refused row."""
        return self._exact(row) or self._sampled(row, self.request.left(0))[0]

    def _exact(self, row: Row) -> Reasons | None:
        target = self.reasoning.model.bound(self.request.target, row.own)
        return self.reasoning.exact(self._decided(row), target, self._reference(row), self.options.most)

    def _sampled(self, row: Row, most: int) -> tuple[Reasons, int]:
        request = self.request
        if self._late():
            return Reasons("none", reason=stopped("clock", 0)), 0
        target, effort = self.reasoning.model.bound(request.target, row.own), Effort(most, request.seed, self._late)
        decided, reference = self._decided(row), self._reference(row)
        return self.reasoning.sampled(decided, target, reference, self.options.most, effort, request.judges)

    def _reference(self, row: Row) -> Reference:
        if self.own_reference is not None:
            return self.own_reference
        return self.reasoning.reference(self.options.reference, self.request.target, row.own)

    def _decided(self, row: Row) -> DecidedRow:
        if row.outcome is None or (self.request.target.differs and row.own < 0):
            raise TypeError("a row without a decision, or with a label that is none of the model's, has no reasons")
        unread = self.request.requirements.unread_levels(self.space, row.codes[None])
        return DecidedRow(row.codes, self.space, row.outcome, read=not unread.any())

    def _late(self) -> bool:
        return self.request.deadline is not None and time.perf_counter() > self.request.deadline


def with_statuses(answers: Explanations) -> Explanations:
    """Return the answers to a request for reasons where also rows without reasons say why."""
    items = tuple(one if one.reasons.status else replace(one, reasons=_without(one)) for one in answers.items)
    return replace(answers, items=items)


def _without(one: Explanation) -> Reasons:
    if one.status == "already":
        return ALREADY
    return Reasons("none", reason=one.reason or say("not_asked"))


def _failed(error: Exception) -> Reasons:
    """Return what is said of a row whose reasons failed; messages may quote values, so only the type is kept."""
    if isinstance(error, UnavailableError):
        return Reasons("none", reason=error.reason)
    _logger.warning("reasons of a row failed with %s", type(error).__name__)
    return Reasons("none", reason=say("reasons_failed", kind=type(error).__name__))


class Compared(NamedTuple):
    """What a row is compared with, by name or as a row, and how many principal reasons are wanted."""

    reference: ReferenceName | Rows
    most: int


def reasons_of(
    context: RequestContext, explainer: AnyExplainer, row: Rows, compared: Compared, options: Mapping[str, Any]
) -> Reasons:
    """Return the reasons of a single row for the owner of a model.

    Args:
        context: of the model; explainer: its own.
        row: a single row.
        compared: with what.
        options: of a request: target, seed and limits.

    Raises:
        InputError: more rows than one, a row that cannot be explained, or a reference that does not fit, or is itself
            refused.
    """
    named = compared.reference if isinstance(compared.reference, str) else None
    target = options.get("target")
    wanted = target.to_dict() if isinstance(target, Target) else target
    query = Query.read({**options, "target": wanted, "reasons": ReasonOptions.read(named, compared.most)})
    request = context.request(query, explainer, Caller(query.time_limit_s, 0.0, served=False), (), lambda _: ())
    request.target.check_single()
    with asking(request) as asked:
        try:
            told = _reasons_of(asked, row, compared)
        except UnavailableError as error:
            told = Reasons("none", reason=error.reason)
    return reasons_in(told, request.speaker.language)


def _reasons_of(request: Request, row: Rows, compared: Compared) -> Reasons:
    beside_answers(request, 1)
    coded, decided = _one(request, row, "row")
    asked = ReasonRequest.of(request, coded.space)
    if asked is None or not is_wanted(request, decided):
        return ALREADY
    if not isinstance(compared.reference, str):
        asked = replace(asked, own_reference=_own_reference(request, asked.reasoning, compared.reference, decided))
    with request.admission.entered(request.caller.patience_s) as _:
        return asked.of_row(decided)


def outcome_words(target: Target) -> str:
    """Return the wanted outcome in words: ``good``, ``any other decision``, ``from 10 to 20``."""
    if target.means:
        return target.means
    if target.label is not None:
        return say("label", label=target.label)
    if target.differs:
        return say("other_decision")
    low, high = target.low, target.high
    if low is not None and high is not None:
        return say("within", low=low, high=high)
    return say("at_least", low=low) if low is not None else say("not_above", high=high)


def _one(request: Request, rows: Rows, path: str) -> tuple[CodedRows, Row]:
    """Return a single row as the model decides on it."""
    known = request.bound_policy.space
    try:
        table = known.read(rows)
    except InputError as error:
        raise InputError(error.path.replace("rows", path, 1), error.fact, error.fix) from None
    if len(table) != 1:
        raise InputError(path, f"there are {len(table):,}", "give a single row")
    coded = CodedRows.of(known, table)
    for fault in coded.faults.values():
        raise InputError(path, fault, "check the values of the row")
    (row,) = read_rows(request.judges, coded)
    if row.unanswered:
        raise UnavailableError(row.fault)
    if request.session is not None and request.session.trouble:
        raise UnavailableError(request.session.trouble)
    return coded, row


def _own_reference(request: Request, reasoning: Reasoning, rows: Rows, refused: Row) -> Reference:
    coded, row = _one(request, rows, "reference")
    if coded.space is not request.bound_policy.space:
        raise InputError("reference", "it has a level that the background does not have", "give a row of known levels")
    target = reasoning.model.bound(request.target, refused.own)
    if row.outcome is None or not bool(target.met(row.outcome)[0]):
        raise InputError("reference", "the row is itself refused", "give one that is decided as wanted, or 'approved'")
    return reasoning.prepared(Reference(row.codes[None], say("given_row")))
