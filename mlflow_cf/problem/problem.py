"""One row to explain, with everything an explainer needs to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlflow_cf.constraints.compile import ChangeLimit
from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.goal.targets import BoundTarget, Rating
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.policy.limits import USUAL, Variety, ranges
from mlflow_cf.problem.actions import ActionTable, Codes, Group, JointRule
from mlflow_cf.problem.binding import Linking
from mlflow_cf.problem.distance import BoundDistance
from mlflow_cf.problem.intervals import Cells
from mlflow_cf.problem.single_features import BoundColumns, PackedGroups
from mlflow_cf.problem.steps import StepRules
from mlflow_cf.structures.structure import Encoded

FEW = 1_000  # candidates up to which rules are checked on their rows instead of in tables


@dataclass(frozen=True, eq=False)
class Problem:
    """A query row bound to its constraints, distance and target.

    Attributes:
        space: features, with codes for the row's unseen levels.
        x0: (d,) codes of the row to explain.
        groups: the groups of features that change together, in the order of their first columns.
        order: the groups in the order in which they are repaired.
        joint: the rules over several groups.
        never: rules that no counterfactual of this row can meet.
        bound_distance: the distance.
        limits: how many groups may differ, as policy and request count them; see `changes_left`.
        count: how many answers are wanted.
        rate: rows (m, d) -> rating, by the fastest scoring that agrees with the model.
        background: (n, d) coded background rows; `rate_background` rates them without asking the model.
        scorer: rates candidates from their codes by the opened model; None where it could not be opened, or the row has
            levels that the background lacks.
        check: rows (m, d) -> (m,) whether each meets every constraint and `values` as a whole row.
        partial: the same for the requirements that could be opened, the model among them, where others could not.
        bound_together: the groups packed into arrays as they were bound; ignored once `groups` is replaced.
        steps: checks whether one row may follow another on a path that starts at x0; None: not known.
        encoded_domains: per column, the encoded values of its domain's actions; empty: made when they are needed.
        cells: of continuous numbers, if the model was opened; see `intervals`. celled: the columns of groups whose
            actions are the nearest value of every cell instead of observed values.
        action_model: the policy's declared actions for plans, if there are any.
        target: what the model must predict, given the row's own prediction; None: not known.
        variety: how several answers differ.
    """

    space: FeatureSpace
    x0: Floats
    groups: tuple[Group, ...]
    order: tuple[int, ...]
    joint: Linking
    never: tuple[Rule, ...]
    bound_distance: BoundDistance
    limits: tuple[ChangeLimit, ...]
    count: int
    rate: Callable[[Floats], Rating]
    background: Floats
    rate_background: Callable[[], Rating]
    check: Callable[[Floats], Bools]
    scorer: Scorer | None = None
    partial: Scorer | None = None
    bound_together: PackedGroups | None = None
    steps: StepRules | None = None
    encoded_domains: Mapping[int, Encoded] = field(default_factory=dict)
    cells: Cells | None = None
    celled: frozenset[int] = frozenset()
    action_model: ActionModel | None = None
    target: BoundTarget | None = None
    variety: Variety = USUAL

    @property
    def packed_groups(self) -> PackedGroups | None:
        """The groups packed into arrays, if all are single features with few values and as they were bound."""
        return self.bound_together if self.bound_together and self.bound_together.groups is self.groups else None

    @property
    def plainly_possible(self) -> bool:
        """Whether one look shows that nothing must change, something may, and no rule forbids every row."""
        packed = None if self.never else self.packed_groups
        return packed is not None and bool(packed.packed.allowed.all()) and len(packed.packed.ids) > len(self.groups)

    @cached_property
    def _packed(self) -> BoundColumns:
        """The actions of all groups, group after group; without values where some group has several columns."""
        if self.packed_groups is not None:
            return self.packed_groups.packed
        return BoundColumns.of([group.bound for group in self.groups], self.own_allowed)

    @cached_property
    def own(self) -> Codes:
        """(G,) codes of the query row."""
        return np.asarray(self._packed.own)

    @cached_property
    def own_allowed(self) -> Bools:
        """(G,) whether the rules accept the query row's own action."""
        if self.packed_groups is not None:
            return np.asarray(self.packed_groups.packed.allowed)
        return np.array([group.own_allowed for group in self.groups], dtype=np.bool_)

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """Columns of every group."""
        return tuple(group.columns for group in self.groups)

    @property
    def linking(self) -> tuple[Rule, ...]:
        """The rules over several groups that may fail for this row, grounded."""
        return self.joint.rules

    @cached_property
    def joint_rules(self) -> tuple[JointRule, ...]:
        """The rules over several groups, checked on codes."""
        return tuple(JointRule.bind(rule, self.groups, self.x0, self.rows) for rule in self.linking)

    @cached_property
    def linked(self) -> frozenset[int]:
        """The groups that rules over several groups are about."""
        return self.joint.groups if self.joint.every else frozenset()

    def held(self, codes: Codes) -> Bools:
        """Return (m,) whether candidates by code (m, G) meet the rules over several groups, and change few enough."""
        held: Bools = self.changes_left(codes) >= 0 if self.limits else np.ones(len(codes), dtype=np.bool_)
        if len(codes) > FEW:
            for joint in self.joint_rules:
                held &= joint.holds(codes)
        elif self.linked and len(codes):  # tabulating a rule would take longer
            held &= self.joint.holds(self.rows(codes))
        return held

    def lawful(self, codes: Codes) -> Bools:
        """Return (m,) whether candidates by code (m, G) meet all rules, also those about a row as a whole."""
        lawful: Bools = self.held(codes) & self.check(self.rows(codes))
        return lawful

    def rows(self, codes: Codes) -> Floats:
        """Return candidate rows (m, d) for codes (m, G)."""
        return np.asarray(self._columns_values[codes[:, self.owner] + self._columns_start])

    def rate_codes(self, codes: Codes) -> Rating:
        """Rate candidates by code (m, G), by the fastest scoring there is."""
        if self.scorer is None:
            return self.rate(self.rows(codes))
        return self.scorer.rate_encoded(self.encoded(codes))

    def encoded(self, codes: Codes) -> list[Encoded]:
        """Return the structure's encoded values of candidates by code (m, G), one array per column."""
        return self.actions.encoded_candidates(codes)

    @cached_property
    def encoded_row(self) -> list[Encoded]:
        """The structure's encoded values (1, ...) of the query row, one array per column; none without structure."""
        if (known := self._own_end_to_end) is not None:
            return list(known[:, None])  # one group a column, in their order
        return [] if self.scorer is None else self.scorer.encoded(range(len(self.x0)), self.x0[None])

    @cached_property
    def _own_end_to_end(self) -> Encoded | None:
        """(G, ...) the encoded values of the row's own value in every group, if they fit into one array."""
        if not (self.packed_groups and self.scorer and self.encoded_domains):
            return None
        return self.packed_groups.encoded_row(self.scorer.encoded)

    @cached_property
    def owner(self) -> Codes:
        """(d,) the group of every column."""
        if self._single_features:
            return np.arange(len(self.space))
        owner = {column: number for number, columns in enumerate(self.columns) for column in columns}
        return np.array([owner[column] for column in range(len(self.space))], dtype=np.intp)

    @cached_property
    def encoded_tables(self) -> list[Encoded]:
        """For every column, the encoded values of its group's actions."""
        if self.packed_groups and self._own_end_to_end is not None:
            return self.packed_groups.encoded_actions(self._own_end_to_end)
        tables: dict[int, Encoded] = {}
        for group in self.groups:
            if self.scorer is not None:
                tables.update(zip(group.columns, self.encoded_group(self.scorer, group), strict=True))
        return [tables[column] for column in range(len(self.space))]

    def encoded_group(self, scorer: Scorer, group: Group) -> list[Encoded]:
        """Return the encoded values (t, ...) of a group's actions, one array per column."""
        known = all(len(self.encoded_domains.get(column, ())) for column in group.columns)  # and there are some
        if not known or group.ids is None:
            return scorer.encoded(group.columns, group.actions)
        tables = [self.encoded_domains[column].take(group.ids, axis=0) for column in group.columns]
        if group.ids[group.own] < 0:
            own = scorer.encoded(group.columns, group.actions[[group.own]])
            for table, encoded in zip(tables, own, strict=True):
                table[group.own] = encoded[0]
        return tables

    def distance(self, codes: Codes) -> Floats:
        """Return the distance (m,) of codes (m, G), bit for bit that of their rows."""
        packed = self._packed
        ids = codes + packed.start[:-1]
        total: Floats = np.add.accumulate(packed.cost[ids], axis=1)[:, -1]  # in order, unlike `sum`
        if self.bound_distance.c:
            total = total + self.bound_distance.c * packed.peak[ids].max(axis=1)
        return total

    @cached_property
    def actions(self) -> ActionTable:
        """All actions of all groups; an action's place is where its group starts and its number in the group."""
        packed = self._packed
        cost, peak = np.asarray(packed.cost), np.asarray(packed.peak)
        return ActionTable(cost, peak, packed.start, self.own, self.owner, self._encoded)

    def _encoded(self) -> list[Encoded]:
        return [] if self.scorer is None else self.encoded_tables

    @cached_property
    def _columns_start(self) -> Codes:
        """(d,) where every column starts among `_columns_values`."""
        if self._single_features:
            return np.asarray(self._packed.start[:-1][self.owner])
        sizes = np.diff(self._packed.start)[self.owner]
        return np.cumsum(sizes, dtype=np.intp) - sizes

    @cached_property
    def _columns_values(self) -> Floats:
        """The values of every column in the actions of its group, column after column."""
        if self._single_features:
            return np.asarray(self._packed.values)
        positions = [self.columns[number].index(column) for column, number in enumerate(self.owner)]
        pairs = zip(self.owner.tolist(), positions, strict=True)
        return np.concatenate([self.groups[number].actions[:, place] for number, place in pairs])

    @cached_property
    def _single_features(self) -> bool:
        """Whether every group is a single feature."""
        return len(self.groups) == len(self.space)

    def undone(self, Z: Floats) -> tuple[Codes, Floats]:
        """Return every way to undo one changed group of rows Z (m, d), something else staying changed.

        Returns:
            The row (v,) that each comes from, and the new rows (v, d).
        """
        owner, number = self._to_undo(self.changed(Z))
        return owner, np.where(self.owner == number[:, None], self.x0, Z[owner])

    def undone_codes(self, codes: Codes) -> tuple[Codes, Codes]:
        """Return the same as `undone` for candidates by code (m, G)."""
        owner, number = self._to_undo(codes != self.own)
        undone = codes[owner]
        undone[np.arange(len(owner)), number] = self.own[number]
        return owner, undone

    def _to_undo(self, changed: Bools) -> tuple[Codes, Codes]:
        """Return the candidates (v,) and groups (v,) of all changes (m, G) that can be undone."""
        owner, number = np.nonzero(changed & self.own_allowed & (changed.sum(axis=1) > 1)[:, None])
        return owner, number

    @cached_property
    def most_changes(self) -> int:
        """Most groups that may differ; a limit that counts by smaller groups never counts fewer."""
        return min([len(self.groups), *(limit.most for limit in self.limits)])

    def changes_left(self, codes: Codes) -> Codes:
        """Return how many more groups candidates (m, G) may change, by every limit; below 0: they change too many."""
        left: Codes = self.most_changes - (codes != self.own).sum(axis=1)
        for limit, counts in self._finer_limits:
            used = np.sum([count[code] for count, code in zip(counts, codes.T, strict=True)], axis=0)
            left = np.minimum(left, limit.most - used)
        return left

    @cached_property
    def plain_limits(self) -> bool:
        """Whether every limit counts the groups as they are here, so that what is within `most_changes` breaks none."""
        return not self._finer_limits

    @cached_property
    def _finer_limits(self) -> list[tuple[ChangeLimit, list[Codes]]]:
        """The limits that count by smaller groups, those of a policy whose groups a request joins."""
        return [(limit, self.counts_of(limit)) for limit in self.limits if limit.groups != self.columns]

    def counts_of(self, limit: ChangeLimit) -> list[Codes]:
        """Return, per group, how many changes (t,) a limit counts for each of its actions."""
        return [limit.counts(group.columns, group.actions, self.x0) for group in self.groups]

    @cached_property
    def least_differences(self) -> Floats:
        """(d,) by how much numbers of two answers differ at least, by the policy."""
        return self.variety.min_difference * ranges(self.space.features)

    def changed(self, Z: Floats) -> Bools:
        """Return (m, G) flags of the groups in which rows Z (m, d) differ from the query row."""
        differs = differing(Z, self.x0)
        if self._single_features:
            return differs
        return np.column_stack([differs[:, columns].any(axis=1) for columns in self.columns])
