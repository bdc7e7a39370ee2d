"""What a reviewer reads first: the fewest common changes that turn the most rows.

Common are changes that mean the same for every row: what answers for single rows have in common.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, combinations
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from mlflow_cf import cards
from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.lines import GROUP
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Feature, FeatureSpace, Floats, Level
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Outcome
from mlflow_cf.problem import Codes
from mlflow_cf.words.sentences import counted, spoken

__all__ = ["Cohorts", "cohorts"]

MOST_CHANGES: Final = 200  # common changes that are tried
MOST_TRIED: Final = 2_000_000  # rows times common changes; of more rows fewer changes are tried, but no fewer than
FEWEST_CHANGES: Final = 20
TOGETHER: Final = 2**15  # rows that the model is asked about at once
BOUNDS: Final = ("equal", "at_least", "at_most")  # by `Move.direction`

Answer = Mapping[str, Level | None]


@dataclass(frozen=True)
class Cohort:
    """A common change, and the rows that it turns and no change before it does.

    Attributes:
        text: the change, such as ``utilisation to 30 or less``.
        changes: ``{"feature": .., "at_most": 30}``, or ``at_least``, or ``equal``; one or two.
        turned: how many rows it turns; share: of all rows that miss the target.
        distance: mean distance of these rows from what they become.
        by_group: share of the rows of each group that it turns.
    """

    text: str
    changes: tuple[Mapping[str, Level | None], ...]
    turned: int
    share: float
    distance: float
    by_group: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the cohort as plain JSON values."""
        return {**vars(self), "changes": [dict(change) for change in self.changes], "by_group": dict(self.by_group)}


@dataclass(frozen=True)
class Cohorts:
    """The common changes in the order in which they were chosen.

    Attributes:
        items: the changes with their rows; no row is in two of them.
        rows: how many rows miss the target; groups: how many in each group.
    """

    items: tuple[Cohort, ...]
    rows: int
    groups: Mapping[str, int] = field(default_factory=dict)

    @property
    def covered(self) -> float:
        """Share of the rows that miss the target which one of the changes turns; 0 where no row misses it."""
        return sum(item.turned for item in self.items) / self.rows if self.rows else 0.0

    @property
    def by_group(self) -> dict[str, float]:
        """Share of the rows of each group that one of the changes turns."""
        return {name: sum(item.by_group[name] for item in self.items) for name in self.groups}

    def to_frame(self) -> pd.DataFrame:
        """Return one line per change: change, turned, share, covered (so far), distance, and a share per group."""
        lines = [(item.text, item.turned, item.share, item.distance, *item.by_group.values()) for item in self.items]
        columns = ["change", "turned", "share", "distance", *self.groups]
        table = pd.DataFrame(lines, columns=columns).astype({"change": "str", "turned": "int64"})
        so_far = list(accumulate(item.turned for item in self.items))
        table.insert(3, "covered", np.array(so_far, dtype=np.float64) / max(self.rows, 1))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the cohorts as plain JSON values."""
        return {
            "rows": self.rows,
            "covered": self.covered,
            "groups": dict(self.groups),
            "by_group": self.by_group,
            "items": [item.to_dict() for item in self.items],
        }

    def __str__(self) -> str:
        head = f"{counted(len(self.items), 'common change')} {'turn' if len(self.items) != 1 else 'turns'}"
        lines = [f"{item.text}: {counted(item.turned, 'row')} ({item.share:.1%})" for item in self.items]
        return "\n  ".join([f"{head} {self.covered:.1%} of {counted(self.rows, 'row')} that miss the target", *lines])

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        return cards.page(cards.told(str(self).partition("\n")[0]), cards.table(self.to_frame()))


def cohorts(
    explained: ExplainedModel,
    rows: pd.DataFrame,
    *,
    most: int = 5,
    groups: pd.Series | None = None,
    counterfactuals: Sequence[Answer | None] | None = None,
) -> Cohorts:
    """Return the common changes that turn the most rows, each verified by the model for every row it counts.

    A common change is what answers for single rows have in common: one or two features go to a level, or up or down to
    a number; who is there already keeps what they have. Of the 200 that most answers are cases of (fewer above 10,000
    rows, and 20 at least) the one is chosen that turns the most rows without breaking a constraint, then the one that
    turns the most others, and so on; among equals the one with the least mean distance, then by its text.

    Args:
        explained: the model with its target and constraints.
        rows: (m, d) as for `ExplainedModel.explain`; those that meet the target, or cannot be read, are left out.
        most: how many changes.
        groups: (m,) the group of every row.
        counterfactuals: (m,) the answer for every row by feature, None without; None: they are searched.

    Raises:
        InputError: no rows, or arguments that do not fit.
    """
    if most < 1:
        raise InputError("most", f"{most} is less than 1", "ask for one change at least")
    table = explained.space.read(rows)
    if not len(table):
        raise InputError("rows", "there are none", "pass at least one row")
    for path, given in (("groups", groups), ("counterfactuals", counterfactuals)):
        if given is not None and len(given) != len(table):
            raise InputError(path, f"{len(given):,} for {len(table):,} rows", "give one for every row")
    unfavourable = _Unfavourable.of(explained, table, groups)
    places = unfavourable.places.tolist()
    if counterfactuals is None:
        found = explained.explain(table.iloc[places]) if places else ()
        answers: list[Answer | None] = [one.counterfactuals[0].row if one.counterfactuals else None for one in found]
    else:
        for at, answer in enumerate(counterfactuals):
            if lacking := [name for name in explained.space.names if answer is not None and name not in answer]:
                path = f"counterfactuals[{at}].{lacking[0]}"
                raise InputError(path, "feature is missing", "give every feature a value")
        answers = [counterfactuals[place] for place in places]
    return unfavourable.chosen(unfavourable.common_changes(answers), most)


def of_lines(explained: ExplainedModel, rows: pd.DataFrame, lines: pd.DataFrame, most: int = 5) -> Cohorts:
    """Return the `cohorts` of rows (m, d) that were measured, by the nearest answers and the groups in their lines."""
    answers = [None if pd.isna(answer) else json.loads(answer) for answer in lines["counterfactual"]]
    columns = [column for column in lines.columns if column.startswith(GROUP)]
    groups = lines[columns].agg(", ".join, axis=1) if columns else None
    return cohorts(explained, rows, most=most, groups=groups, counterfactuals=answers)


@dataclass(frozen=True, eq=False)
class _Unfavourable:
    """The rows that miss the target.

    Attributes:
        explained, space: the model, and its features with codes for all levels of the rows.
        places: (m,) where these rows stand among all.
        X: (m, d) their codes; own: (m,) their own labels, by position among the model's classes.
        groups: (m,) their groups; empty: they have none.
    """

    explained: ExplainedModel
    space: FeatureSpace
    places: Codes
    X: Floats
    own: Codes
    groups: tuple[str, ...]

    @classmethod
    def of(cls, explained: ExplainedModel, table: pd.DataFrame, groups: pd.Series | None) -> _Unfavourable:
        """Ask the model which rows of a table miss the target."""
        space = explained.space.covering(table)
        codes, faults = space.encode_rows(table)
        good = np.array([row for row in range(len(table)) if row not in faults], dtype=np.intp)
        every = cls(explained, space, good, codes[good], np.full(len(good), -1), ())
        missed = np.zeros(len(good), dtype=np.bool_)
        for at, outcome in every._outcomes(every.X):
            every.own[at] = outcome.codes
            missed[at] = ~every._favourable(outcome, outcome.codes)
        some = () if groups is None else tuple(groups.iloc[good[missed]].map(str))
        return cls(explained, space, good[missed], every.X[missed], every.own[missed], some)

    def common_changes(self, answers: Sequence[Answer | None]) -> list[CommonChange]:
        """Return the common changes of answers (m,) that are worth trying."""
        known = {at: answer for at, answer in enumerate(answers) if answer is not None}
        if not known:
            return []
        most = min(max(MOST_TRIED // len(self.X), FEWEST_CHANGES), MOST_CHANGES)
        Z, faults = self.space.encode_rows(self.space.from_values(list(known.values())))
        good = [place for place in range(len(known)) if place not in faults]
        return common_changes(self.space, self.X[list(known)][good], Z[good], most)

    def chosen(self, changes: Sequence[CommonChange], most: int) -> Cohorts:
        """Choose changes greedily; what a change turns is verified before it is counted."""
        distance = self._distances(changes)
        features, left = self.space.features, np.ones(len(self.X), dtype=np.bool_)
        texts = [" and ".join(move.text(features[move.column]) for move in change) for change in changes]
        items: list[Cohort] = []
        while len(items) < most:
            turns = np.isfinite(distance) & left
            gains = turns.sum(axis=1)
            if not gains.any():  # nor are there any changes
                break
            ties = np.flatnonzero(gains == gains.max()).tolist()
            best = min(ties, key=lambda at: (float(distance[at, turns[at]].mean()), texts[at]))
            turned = np.flatnonzero(turns[best])
            refused = turned[~self._verified(changes[best], turned)]
            if len(refused):
                distance[best, refused] = np.inf
                continue
            items.append(self._cohort(changes[best], texts[best], distance[best, turned], turned))
            left[turned] = False
        return Cohorts(tuple(items), len(self.X), self._sizes)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """How many rows are in each group."""
        return dict(sorted(Counter(self.groups).items()))

    def _distances(self, changes: Sequence[CommonChange]) -> Floats:
        """Return how far every change takes each row (changes, m) that it seems to turn lawfully; inf: none of that."""
        rows, bound_policy = len(self.X), self.explained.bound_policy.covering(self.space)
        columns = tuple(domain.columns for domain in bound_policy.domains)
        distance = np.full((len(changes), rows), np.inf)
        size = max(1, TOGETHER // max(rows, 1))
        for start in range(0, len(changes) if rows else 0, size):
            some = changes[start : start + size]
            Z = np.concatenate([applied(change, self.space, self.X) for change in some])
            X = np.tile(self.X, (len(some), 1))
            lawful = np.flatnonzero(bound_policy.accepts(Z, X))
            found = distance[start : start + size].reshape(-1)
            for at, outcome in self._outcomes(Z[lawful]):
                asked = lawful[at]
                turned = asked[self._favourable(outcome, self.own[asked % rows])]
                found[turned] = bound_policy.bound_distance.distance(columns, Z[turned], X[turned])
        return distance

    def _outcomes(self, Z: Floats) -> Iterator[tuple[Codes, Outcome]]:
        """Yield what the model says of rows (m, d), and which of them; those that make it fail are left out."""
        waiting = [np.arange(start, min(start + TOGETHER, len(Z))) for start in range(0, len(Z), TOGETHER)]
        while waiting:
            at = waiting.pop()
            try:
                outcome = self.explained.judge.verdict(self.space.decode(Z[at]))
            except Exception:  # noqa: BLE001  any model, any error: what can be predicted must still be counted
                waiting.extend(np.array_split(at, 2) if len(at) > 1 else [])
                continue
            yield at, outcome

    def _favourable(self, outcome: Outcome, own: Codes) -> Bools:
        """Return (m,) whether outcomes meet the target of rows with their own labels (m,)."""
        target, model = self.explained.policy.target, self.explained.model
        met = np.zeros(len(own), dtype=np.bool_)
        for label in np.unique(own) if target.differs else [-1]:
            here = np.flatnonzero(own == label) if target.differs else np.arange(len(own))
            met[here] = BoundTarget(target, model, int(label)).met(outcome.take(here))
        return met

    def _verified(self, change: CommonChange, at: Codes) -> Bools:
        """Return whether a change of some rows (k,) is a counterfactual, as everybody is told who asks."""
        rows, changed = (self.space.decode(Z) for Z in (self.X[at], applied(change, self.space, self.X[at])))
        return np.array([one.ok for one in self.explained.verify(rows, changed, minimality=False)], dtype=np.bool_)

    def _cohort(self, change: CommonChange, text: str, distance: Floats, turned: Codes) -> Cohort:
        moved = [(self.space.features[move.column], move) for move in change]
        counts = Counter(self.groups[at] for at in turned) if self.groups else Counter[str]()
        return Cohort(
            text=text,
            changes=tuple({"feature": f.name, BOUNDS[move.direction]: f.value(move.code)} for f, move in moved),
            turned=len(turned),
            share=len(turned) / len(self.X),
            distance=float(distance.mean()),
            by_group={name: counts[name] / rows for name, rows in self._sizes.items()},
        )


MOST_VALUES: Final = 12  # of one feature in one direction: more are rounded to as many of them


class Move(NamedTuple):
    """Where one feature goes.

    Attributes:
        column: the feature.
        direction: 1: up to `code` from below; -1: down to it from above; 0: to it from any other level.
        code: the value, one that answers have.
    """

    column: int
    direction: int
    code: float

    def moved(self, own: Floats, unknown_from: float) -> Bools:
        """Return (m,) which of the values (m,) change; missing ones, and those without a rank, have no direction."""
        if not self.direction:
            differs: Bools = own != self.code
            return differs
        changed: Bools = (own < unknown_from) & ((self.code - own) * self.direction > 0)
        return changed

    def text(self, feature: Feature) -> str:
        """Return ``utilisation to 30 or less``."""
        words = {"ordinal": ("higher", "lower"), "date": ("later", "earlier")}.get(feature.kind, ("more", "less"))
        beyond = f" or {words[self.direction < 0]}" if self.direction else ""  # values that are left as they are
        return f"{feature.name.replace('_', ' ')} to {spoken(feature.value(self.code))}{beyond}"


CommonChange = tuple[Move, ...]  # one or two, by column


def applied(change: CommonChange, space: FeatureSpace, X: Floats) -> Floats:
    """Return rows X (m, d) with the values beyond every move set to it."""
    Z = X.copy()
    for move in change:
        Z[move.moved(X[:, move.column], space.features[move.column].unknown_from), move.column] = move.code
    return Z


def common_changes(space: FeatureSpace, X: Floats, Z: Floats, most: int) -> list[CommonChange]:
    """Return the common changes of one or two features that most answers Z (k, d) for rows X (k, d) are cases of.

    A number that was missing has no direction, and takes part in none. Where answers have more than 12 values of a
    number in one direction, each counts as the next one of 12 that goes as far.
    """
    answers = zip(X, Z, differing(Z, X), strict=True)
    moves = [_moves(space, x, z, np.flatnonzero(changed).tolist()) for x, z, changed in answers]
    kept = _kept(moves)
    found: Counter[CommonChange] = Counter()
    for several in moves:
        rounded = [move._replace(code=_rounded(move, kept[move.column, move.direction])) for move in several]
        found.update((move,) for move in rounded)
        found.update(combinations(rounded, 2))
    return sorted(found, key=lambda change: (-found[change], len(change), change))[:most]


def _moves(space: FeatureSpace, x: Floats, z: Floats, columns: Sequence[int]) -> list[Move]:
    """Return the moves from a row (d,) to its answer (d,), by column."""
    moves = []
    for column in columns:
        feature, old, new = space.features[column], float(x[column]), float(z[column])
        ranked = feature.has_order and old < feature.unknown_from
        if new < feature.unknown_from and (ranked or not feature.numeric):
            moves.append(Move(column, (1 if new > old else -1) if ranked else 0, new))
    return moves


def _kept(moves: Sequence[Sequence[Move]]) -> dict[tuple[int, int], Floats]:
    """Return for every column and direction the values that count, ascending; the farthest one is among them."""
    codes: dict[tuple[int, int], list[float]] = defaultdict(list)
    for several in moves:
        for move in several:
            codes[move.column, move.direction].append(move.code)
    kept, shares = {}, np.linspace(0, 1, MOST_VALUES)
    for (column, direction), known in codes.items():
        values = np.unique(known)
        if direction and len(values) > MOST_VALUES:
            values = np.unique(np.quantile(known, shares, method="higher" if direction > 0 else "lower"))
        kept[column, direction] = values
    return kept


def _rounded(move: Move, kept: Floats) -> float:
    """Return the nearest of the values that goes at least as far."""
    place = kept.searchsorted(move.code, side="right") - 1 if move.direction < 0 else kept.searchsorted(move.code)
    return float(kept[place])
