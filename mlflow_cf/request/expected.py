"""Predictions of rows by the opened model, so that one call of the logged one serves for rows and candidates together.

An opened model was checked to agree with the logged one. So rows are explained by what its structure predicts, and the
logged model is asked about them beside the candidates, because the price of a call hardly depends on its size. Rows of
which it predicts something else are explained again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.goal.targets import rate_sums
from mlflow_cf.model.judge import Outcome
from mlflow_cf.proof.verify import NOTHING, Inquiry, VerifiedAnswers
from mlflow_cf.request.request import Request, is_wanted, wanted_of
from mlflow_cf.request.rows import CodedRows, Reading, Row
from mlflow_cf.structures.structure import linked

# Rows that an opened model predicts at once: pipelines hold up to ten times a row for each, and 5 to 16 ms of a call do
# not depend on their number: of Adult, a row costs 3.2 us with half as many, and no less with twice as many. Of models
# that were not opened nobody knows whether what they say of a row depends on the others.
MOST_PREDICTED: Final = 16_384


def coded(request: Request, table: pd.DataFrame) -> CodedRows:
    """Return the rows of a request as codes; several threads read a long table, or each part when it is predicted."""
    known = request.bound_policy.space
    if len(table) <= MOST_PREDICTED:
        return CodedRows.of(known, table)
    return CodedRows.unread_of(known, table) or CodedRows.of(
        known, table, partial(request.admission.shared, further=request.caller.further, placed=False)
    )


class Predictions:
    """The predictions of a request's rows; the model is asked about them alone, or beside candidates.

    Attributes:
        request: the request; space: covers its rows, and all candidates.
        few: how many rows at most are a short table, which is one batch: every batch costs a call of the model.
        expected: the rows as the opened model knows them; none if the model must be asked before any search.
        to_search: those of them that are to be explained, by number.
    """

    def __init__(self, request: Request, coded: CodedRows, few: int) -> None:
        """Set up for rows that are coded, and not predicted yet."""
        self.request, self.space, self.few, self._coded = request, coded.space, few, coded
        self.expected = _expected(request, coded) if len(coded.codes) <= few else []
        self.to_search = wanted_of(request, self.expected)
        self._asked = False
        self._said: Outcome | None = None
        self._all_agree = False

    @cached_property
    def rows(self) -> Sequence[Row]:
        """All rows as the model predicts them: it is asked about them now, unless it has confirmed what was expected.

        Raises:
            InputError: it can predict none of them.
        """
        self._asked = True
        rows: Sequence[Row] = []
        if self._said is not None:
            model, confirmed = self.request.requirements.judge.model, list[Row]()
            for number, one in enumerate(self.expected):
                outcome = replace(self._said.take(np.array([number])), further=())
                code = int(outcome.codes[0])
                label = float(outcome.values[0]) if model.regression else model.classes[code] if code >= 0 else None
                confirmed.append(Row(one.codes, "", label, outcome))
            rows = confirmed
            self._all_agree = all(self.agrees(number, row) for number, row in enumerate(rows))
        if not self._all_agree:
            with self.request.admission.predicting():
                share = partial(self.request.admission.shared, further=self.request.caller.further, placed=False)
                rows = self.reading.finished(share)
        if not self.expected or self.request.requirements.opened.steady:
            return rows
        # the model's rounding depends on the other rows of a call: show the numbers of each row alone
        return [
            replace(row, outcome=self.expected[number].outcome) if self.agrees(number, row) else row
            for number, row in enumerate(rows)
        ]

    @cached_property
    def reading(self) -> Reading:
        """All rows while the logged model predicts them."""
        return Reading(self.request.judges, self._coded, self._parts)

    @property
    def known(self) -> bool:
        """Whether all rows are predicted, or soon can be: they are few."""
        return bool(self.expected) or not self.reading.left

    @property
    def in_parts(self) -> bool:
        """Whether the model predicts the rows in several calls."""
        return len(self.reading.left) > 1

    @property
    def _parts(self) -> int:
        """In how many calls the model predicts the rows: as many for each core, whichever of them are free."""
        parts, cores = -(-len(self._coded.codes) // MOST_PREDICTED), self.request.admission.places
        return 1 if parts < 2 or self.request.requirements.structure is None else -(-parts // cores) * cores

    def asked(self) -> Inquiry:
        """Ask about expected rows beside candidates, unless the model was asked about them before."""
        codes = self._coded.codes if self.expected and not self._asked else self._coded.codes[:0]
        if not len(codes):
            return VerifiedAnswers(codes, NOTHING)
        self._asked = True
        self._said = yield codes
        return VerifiedAnswers(codes, self._said)

    def agrees(self, number: int, row: Row) -> bool:
        """Whether the model predicts a row as expected."""
        expected = self.expected[number].outcome
        if self._all_agree:
            return True
        if row.outcome is None or expected is None or row.outcome.codes[0] != expected.codes[0]:
            return False
        return is_wanted(self.request, row) == (number in self.to_search)


def _expected(request: Request, coded: CodedRows) -> list[Row]:
    """Return the rows of a short table as the opened model predicts them; none if the logged one must come first."""
    requirements, tables = request.requirements, request.bound_policy.tables
    structure, regression = requirements.opened.structure, requirements.judge.model.regression
    if structure is None or requirements.unopened is not None or request.query.explain == "none":
        return []
    if requirements.unread_levels(coded.space, coded.codes).any():
        return []
    if coded.faults or (regression and not requirements.opened.steady):  # replies show such predictions to the last bit
        return []
    codes = coded.codes
    if tables.structure is structure and len(codes) == 1:
        sums = structure.sums(tables.encoded_row(codes[0]))
    else:  # rounded as if every row was alone
        parts = [codes] if requirements.opened.steady else [row[None] for row in codes]
        columns = range(codes.shape[1])
        encoded = [[structure.encode(column, part[:, column]) for column in columns] for part in parts]
        sums = np.concatenate([structure.sums(part) for part in encoded])
    _, _, margin = rate_sums(sums, [request.bound_target(-1).of_sums(structure.link, 0, structure.outputs)])
    if not (margin >= SCORE_TOLERANCES * requirements.judge.tolerance).all():
        return []
    scores = linked(sums, structure.link)
    if regression:
        outcome = Outcome(np.full(len(codes), -1), None, scores[:, 0])
    else:
        outcome = Outcome(scores.argmax(axis=1), scores)
    return [Row(row, "", None, outcome.take(np.array([number]))) for number, row in enumerate(codes)]
