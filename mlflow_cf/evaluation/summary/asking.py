"""From rows to the table of a summary: which changes are compared, and how they are scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import ConfigDict, Field, StrictFloat, StrictInt

from mlflow_cf.evaluation.summary.changes import common_changes
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.effects import units_of
from mlflow_cf.evaluation.summary.family import ListedFamily, WholeFamily, every_move
from mlflow_cf.evaluation.summary.lawful import LawfulMoves
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.evaluation.summary.table import Table, asked, by_scores, by_structure, decided_by_one, scored
from mlflow_cf.features import Level
from mlflow_cf.validation import UserModel
from mlflow_cf.words.sentences import counted

FamilyName = Literal["all", "answers"]
Seconds = Annotated[StrictInt | StrictFloat, Field(gt=0)]
Answer = Mapping[str, Level | None]
MOST_CHANGES: Final = 200  # common changes of answers that are tried
FEWEST_CHANGES: Final = 20  # so many are tried however many rows there are
MOST_EVALUATIONS: Final = 2_000_000  # rows that a model which is not opened is asked about
MOST_BITS: Final = 2**31  # rows times changes of a table: 256 MB
MOST_UNITS: Final = 2**36  # rows times changes times rectified units of a network: half a minute
MOST_SCORED: Final = 2**23  # the same, where an opened model scores each by itself: some ten seconds


class SummaryOptions(UserModel):
    """How far a summary goes.

    Attributes:
        family: which changes are compared: ``all`` to values that may be proposed, on a grid where these are too many;
            those that most ``answers`` for single rows are cases of, at most 200; None: all where the model is opened,
            or where it can be asked about all of them and no answers are given.
        time_limit_s: seconds for table and choice, verification not counted; rows that were not reached count as turned
            in the bound. None: no clock.
        max_evaluations: how many changed rows a model that is not opened is asked about, verification not counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: FamilyName | None = None
    time_limit_s: Seconds | None = None
    max_evaluations: Annotated[StrictInt, Field(ge=1)] = MOST_EVALUATIONS


@dataclass(frozen=True, eq=False)
class Asking:
    """What is summarised.

    Attributes:
        rows: the rows that miss the target.
        answers: returns the answer for each of them, None without.
        given: whether these are known, and need not be searched.
        most_evaluations: how many rows a model that is not opened may be asked about.
        clock: when to stop.
    """

    rows: RefusedRows
    answers: Callable[[], Sequence[Answer | None]]
    given: bool
    most_evaluations: int
    clock: Clock

    def table(self, family: FamilyName | None) -> Table:
        """Return the table of a family of changes; None: all changes where that can be done, else those of answers."""
        structure = None if family == "answers" else decided_by_one(self.rows)
        if structure is not None:
            width = units_of(structure, self.rows.bound_policy.background)
            whole = self._whole(min(MOST_BITS, MOST_UNITS // width) // len(self.rows))
            return self._with_others(by_structure(self.rows, whole, structure, self.clock))
        opened = self.rows.requirements.structure is not None
        if family == "all" or (family is None and (opened or not self.given)):
            most = (MOST_SCORED if opened else self.most_evaluations) // len(self.rows)
            whole = self._whole(most)
            if family == "all" or (whole.size <= most and (opened or not whole.grid)):
                return self._scored(whole)
        return self._scored(self._listed())

    def _whole(self, most: int) -> WholeFamily:
        """Return the family of all changes, or on a grid so many of them."""
        rows = self.rows
        lawful = LawfulMoves(rows.bound_policy, rows.space, rows.X, ())
        lawful = replace(lawful, moves=every_move(lawful, rows.requirements.structure))
        return WholeFamily.of(lawful, rows.requirements.structure, most)

    def _listed(self) -> ListedFamily:
        """Return the changes that most answers are cases of."""
        rows = self.rows
        known = {at: answer for at, answer in enumerate(self.answers()) if answer is not None}
        if not known:
            return ListedFamily((), "none: there is no answer for any row")
        most = min(max(self.most_evaluations // len(rows), FEWEST_CHANGES), MOST_CHANGES)
        Z, faults = rows.space.encode_rows(rows.space.from_values(list(known.values())))
        good = [place for place in range(len(known)) if place not in faults]
        changes = common_changes(rows.space, rows.X[list(known)][good], Z[good], most)
        number = counted(len(changes), "change")
        text = (
            f"the {number} of one or two features that most of the {len(known):,} answers for single rows are cases of"
        )
        return ListedFamily(tuple(changes), text)

    def _scored(self, family: WholeFamily | ListedFamily) -> Table:
        """Return the table of a family whose changes are scored one by one, of as many rows as may be scored."""
        rows, opened = self.rows, self.rows.requirements.structure is not None
        at = np.flatnonzero(~rows.unread) if opened else np.arange(len(rows))
        if isinstance(family, WholeFamily):
            at = at[: (MOST_SCORED if opened else self.most_evaluations) // max(family.size, 1)]
        if not opened:
            return by_scores(rows, family, at, asked(rows), self.clock)
        return self._with_others(by_scores(rows, family, at, scored(rows), self.clock))

    def _with_others(self, table: Table) -> Table:
        """Return a table with rows that no structure can read, as far as the model may be asked about them."""
        others = np.flatnonzero(table.unscored)[: self.most_evaluations // max(table.family.size, 1)]
        if not len(others) or self.clock.late:
            return table
        more = by_scores(self.rows, table.family, others, asked(self.rows), self.clock)
        np.bitwise_or(table.bits, more.bits, out=table.bits)
        return replace(table, unscored=table.unscored & more.unscored)
