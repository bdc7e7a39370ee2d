"""The nearest candidates of many rows at once that several models of trees accept, however many changes they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints.programs import Checks
from mlflow_cf.engine import thresholds
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.portfolio.kernels import Setting
from mlflow_cf.portfolio.list_kernels import MOST_AS_NEAR, ListedRows, ListQuestion, ListRoom, ListRows, nearest_listed
from mlflow_cf.portfolio.nearest import SettledSets, changed_rows, setting_of
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.problem.single_features import BoundColumns
from mlflow_cf.structures.agreement import DEEPEST, FOUND, Asked, values_room
from mlflow_cf.structures.joined import Joined, JoinedLeaves
from mlflow_cf.structures.kernels.agreement_state import AgreementRoom
from mlflow_cf.structures.kernels.agreement_values import GridValues

ROWS_AT_ONCE: Final = 512  # of which the kinds of their own values are written down: 30 models of 13 features, 800 kB
AT_ONCE: Final = 2**20  # bounds of models' scores, a third of a second, after which somebody else may have his turn
# Of these, that are made for a row. What takes more is listed again by the search of that row, from the beginning: with
# a deadline, each row has its share of the time there.
MOST_BOUNDS: Final = 2**20
SOON_BOUNDS: Final = 2**14


@dataclass(frozen=True, eq=False)
class NearestListed:
    """Finds the nearest candidates of rows that enough models accept; threads may share it.

    Attributes:
        bound_policy: all constraints, of which kernels can check every one; scorer: rates rows.
        setting: what kernels know of them; listed: the rules that list the values of a feature.
        leaves: of the models; asked: what each must say.
        most: evaluations that a list may count; bounds: of models' scores that are made for a row.
    """

    bound_policy: BoundPolicy
    scorer: Scorer
    setting: Setting
    listed: Checks
    leaves: JoinedLeaves
    asked: Asked
    most: int
    bounds: int

    @classmethod
    def of(
        cls, bound_policy: BoundPolicy, scorer: Scorer, tolerance: float, most: int, *, soon: bool
    ) -> NearestListed | None:
        """Return what lists candidates; None where kernels cannot check all constraints, or models list nothing.

        Args:
            bound_policy: the constraints; scorer: rates rows.
            tolerance: by how much scores may be off, in units of max(1, |score|).
            most: evaluations that a list may count.
            soon: whether only rows are looked at that are soon settled.
        """
        structure, swept = scorer.structure, scorer.model_decisions(thresholds.SWEPT)
        decided, found = scorer.model_decisions(tolerance + thresholds.SWEPT), setting_of(bound_policy)
        if swept is None or decided is None or found is None or not isinstance(structure, Joined):
            return None
        if structure is not bound_policy.tables.structure or not scorer.steady:
            return None
        leaves, c = structure.leaves(swept.weights), float(bound_policy.bound_distance.c)
        if leaves is None:
            return None
        asked = Asked(decided.may, decided.sure, decided.models, decided.spare, c, found[0].most)
        return cls(bound_policy, scorer, *found, leaves, asked, most, SOON_BOUNDS if soon else MOST_BOUNDS)

    @property
    def rows_at_once(self) -> int:
        """How many rows should be looked at together."""
        return ROWS_AT_ONCE

    def nearest(self, X: Floats, stopped: Callable[[], bool]) -> SettledSets:
        """Return the nearest candidates of those of rows X (m, d) whose answer is known, until it is `stopped`."""
        out = ListedRows(
            many=np.zeros(len(X), dtype=np.int64),
            places=np.empty((len(X), MOST_AS_NEAR, DEEPEST), dtype=np.int64),
            far=np.empty((len(X), MOST_AS_NEAR)),
            used=np.zeros(len(X), dtype=np.int64),
            bounds=np.zeros(len(X), dtype=np.int64),
        )
        with self.leaves.all.room() as kept:
            rows, room, number = self._rows(X), self._room(kept), 0
            while number < len(X) and not (number and stopped()):
                number = nearest_listed(self._question, rows, number, room, out)
        some = np.flatnonzero(out.many)
        owner = np.repeat(np.arange(len(some)), out.many[some])
        at = np.arange(len(owner)) - np.repeat(np.cumsum(out.many[some]) - out.many[some], out.many[some])
        Z = changed_rows(self.setting.packed, X[some[owner]], out.places[some[owner], at])
        used = out.used[some]
        return SettledSets(some, Z, owner, used, used * X.shape[1])

    @cached_property
    def _question(self) -> ListQuestion:
        encoded, leaves = list(self.bound_policy.tables.encoded.values()), self.leaves.all
        kind = self.leaves.kinds(np.concatenate(encoded).T, [len(some) for some in encoded])
        total = kind.sum(axis=0, dtype=np.float64)
        limits = self.asked.changes, self.most, self.bounds, AT_ONCE
        return ListQuestion(self.setting, kind, total, leaves.masks, leaves.ranges, *limits)

    def _rows(self, X: Floats) -> ListRows:
        """Return rows X (m, d) with what models see of them before any change."""
        packed, distance = self.setting.packed, self.bound_policy.bound_distance
        own_at = np.ascontiguousarray(distance.positions(packed.column, X[:, packed.column]))
        lawful = np.ones(len(X), dtype=np.bool_)
        self.listed.refuse(X, X, lawful)
        encoded = self.scorer.encoded(range(X.shape[1]), X)
        kind = self.leaves.kinds(np.concatenate(encoded).T, [len(X)] * X.shape[1]).reshape(-1, X.shape[1], len(X))
        kind = np.ascontiguousarray(kind.transpose(2, 0, 1))
        return ListRows(X, own_at, kind, kind.sum(axis=1, dtype=np.float64), lawful)

    def _room(self, kept: AgreementRoom) -> ListRoom:
        """Return workspace for rows, around that of lists."""
        models, columns = len(self.asked.may), len(self.bound_policy.space)
        values = len(self.setting.packed.values) + columns
        row, places = values_room(models, columns, values)
        row.c[:] = self.asked.c
        steps = len(self.setting.own_rules.program.does) + len(self.setting.joint.does)
        bound = BoundColumns.room(columns, values - columns)
        grid = GridValues(
            np.empty((models, values), dtype=np.int32),
            np.empty(values),
            bound.cost,
            bound.peak,
            bound.start,
            np.empty(columns, dtype=np.intp),
        )
        return ListRoom(
            bound=bound,
            grid=grid,
            row=row,
            places=places,
            order=np.empty(values, dtype=np.intp),
            listing=self.asked.room(kept),
            found=np.empty((FOUND, DEEPEST + 2), dtype=np.int64),
            candidate=np.empty(columns),
            taken=np.empty(columns, dtype=np.intp),
            stack=np.empty(steps),
            no_rules=np.empty(0, dtype=np.bool_),
        )
