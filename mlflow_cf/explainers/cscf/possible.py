"""What can be done with one row: the actions that may lead to a counterfactual, and the values each can take.

Sequences of them are also numbers in [0, 1], which are their genes (CSCF section 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.bound_actions import BoundAction, derived
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.plans.relations import Relations
from mlflow_cf.problem import Problem

Columns = NDArray[np.intp]
MANY: Final = 1_000_000  # values of a number


@dataclass(frozen=True, eq=False)
class Possible:
    """The actions of one row, with finite values.

    Attributes:
        action_model: what they do; dropped: name -> why an action was left out.
    """

    action_model: ActionModel
    dropped: dict[str, str]

    def __len__(self) -> int:
        return len(self.action_model.actions)

    @property
    def actions(self) -> tuple[BoundAction, ...]:
        """The actions."""
        return self.action_model.actions

    @cached_property
    def low(self) -> Floats:
        """(n,) least value of each action; 0 for those that choose."""
        return np.array([0.0 if action.choices is not None else action.low for action in self.actions])

    @cached_property
    def width(self) -> Floats:
        """(n,) largest less least value; 0 for those that choose."""
        return np.array([0.0 if action.choices is not None else action.high - action.low for action in self.actions])

    @cached_property
    def sizes(self) -> Ints:
        """(n,) how many values there are to choose from; 0 for numbers."""
        return np.array([0 if action.choices is None else len(action.choices) for action in self.actions])

    def count(self, number: int) -> int:
        """Return how many values an action has: those to choose from, or the steps of its feature's grid."""
        step = self.action_model.space.features[self.actions[number].column].step
        if self.sizes[number] or step is None:
            return int(self.sizes[number]) or MANY
        return int(min(self.width[number] / step, MANY)) + 1

    def spread(self, number: int, most: int) -> Floats:
        """Return values of an action, all of them or so many that lie evenly among them."""
        points = min(self.count(number), most)
        even = (np.arange(points) + 0.5) / points if self.sizes[number] else np.linspace(0.0, 1.0, points)
        return self.values(np.full(points, number), even)

    @cached_property
    def columns(self) -> Columns:
        """The columns that some action sets, ascending."""
        return np.array(sorted({column for action in self.actions for column in action.columns}), dtype=np.intp)

    @cached_property
    def _choices(self) -> tuple[Floats, Ints]:
        """All values to choose from, action after action, and (n,) where those of each start."""
        several = [np.empty(0) if action.choices is None else action.choices for action in self.actions]
        return np.concatenate([*several, np.zeros(1)]), np.cumsum(self.sizes) - self.sizes

    def values(self, numbers: Ints, shares: Floats) -> Floats:
        """Return the values that shares in [0, 1] of the ranges of actions stand for (section 4, step 3).

        Args:
            numbers: of the actions; any shape, or one that goes with that of `shares`.
            shares: of their ranges; of values to choose from, all have an equal part.
        """
        values, starts = self._choices
        sizes = self.sizes[numbers]
        places = np.minimum((shares * sizes).astype(np.int64), np.maximum(sizes - 1, 0))
        chosen = values[np.minimum(starts[numbers] + places, len(values) - 1)]
        return np.where(sizes > 0, chosen, self.low[numbers] + shares * self.width[numbers])

    def shares(self, numbers: Ints, values: Floats) -> Floats:
        """Return the shares of their ranges that values of actions stand for, both of one shape."""
        shares: Floats = (values - self.low[numbers]) / np.where(self.width[numbers] > 0, self.width[numbers], 1.0)
        for number in np.flatnonzero(self.sizes).tolist():
            choices, rows = self.actions[number].choices, numbers == number
            if choices is not None and rows.any():
                shares[rows] = ((values[rows][:, None] == choices).argmax(axis=1) + 0.5) / len(choices)
        return shares


def possible(problem: Problem, least_change: dict[str, float], *, discounts: bool) -> Possible:
    """Return what can be done with a row: actions as declared, or one per mutable feature (section 6)."""
    nothing = ActionModel(problem.space, (), Relations(), problem.bound_distance, Declared())
    action_model = problem.action_model or nothing
    mutable = {column for group in problem.groups if group.mutable for column in group.columns}
    actions: Sequence[BoundAction] = action_model.actions or [
        _admissible(action, problem) for action in derived(problem.space, sorted(mutable))
    ]
    setters = Counter(column for action in actions for column in action.columns)
    kept, dropped = list[BoundAction](), dict[str, str]()
    for action in actions:
        finite = _finite(action, problem, alone=setters[action.column] == 1)
        if reason := _idle(finite, problem, mutable):
            dropped[action.name] = reason
        else:
            kept.append(finite)
    relations = action_model.relations if discounts else Relations()
    return Possible(replace(action_model, actions=tuple(kept), relations=relations, least_change=least_change), dropped)


def _admissible(action: BoundAction, problem: Problem) -> BoundAction:
    """Return a derived action that chooses among the values that may be proposed, where these are no interval."""
    group = problem.groups[problem.owner[action.column]]
    if group.interval is not None:
        return action
    values = np.unique(group.actions[:, group.columns.index(action.column)])
    choices = values[~np.isnan(values) & (values != problem.x0[action.column])]
    return replace(action, kind="choose", choices=choices) if len(choices) else action


def _idle(action: BoundAction, problem: Problem, mutable: set[int]) -> str:
    """Return why an action cannot be part of any plan; empty: it can."""
    name = problem.space.names[action.column]
    fixed = [problem.space.names[column] for column in action.columns if column not in mutable]
    if fixed:
        return f"{fixed[0]} cannot change"
    if action.choices is None and not action.low < action.high:
        return f"no value of {name} is left"
    if action.choices is not None and len(action.columns) == 1 and (action.choices == problem.x0[action.column]).all():
        return f"{name} is that already"
    return ""


def _finite(action: BoundAction, problem: Problem, *, alone: bool) -> BoundAction:
    """Return the action with a finite range.

    Where nothing else sets its feature, values that lead out of what that may be are left out.
    """
    if action.choices is not None:
        return action
    feature, own = problem.space.features[action.column], float(problem.x0[action.column])
    changes = action.kind == "change"
    low, high = (feature.low - feature.high, feature.high - feature.low) if changes else (feature.low, feature.high)
    low = action.low if np.isfinite(action.low) else low
    high = action.high if np.isfinite(action.high) else high
    if alone and np.isfinite(own):
        group = problem.groups[problem.owner[action.column]]
        values = group.actions[:, group.columns.index(action.column)]
        ends = np.array(group.interval or (np.nanmin(values), np.nanmax(values))) - (own if changes else 0.0)
        low, high = max(low, float(ends[0])), min(high, float(ends[1]))
    return replace(action, low=low, high=high)


ACTIVE = 0.5  # an action is done if its order key is not larger


@dataclass(frozen=True, eq=False)
class Ordered:
    """Sequences of actions.

    Attributes:
        actions: (m, t) their numbers, -1 behind the last; values: (m, t) their values, 0 there.
    """

    actions: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: Ints | slice) -> Ordered:
        """Return some of the sequences."""
        return Ordered(self.actions[rows], self.values[rows])

    @classmethod
    def together(cls, parts: Sequence[Ordered]) -> Ordered:
        """Return all sequences of several lots, one lot after the other."""
        starts = np.cumsum([0, *map(len, parts)])
        shape = (starts[-1], max(part.actions.shape[1] for part in parts))
        actions, values = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
        for part, start, stop in zip(parts, starts[:-1], starts[1:], strict=True):
            actions[start:stop, : part.actions.shape[1]] = part.actions
            values[start:stop, : part.actions.shape[1]] = part.values
        return cls(actions, values)


def decoded(genes: Floats, possible: Possible, most: int) -> Ordered:
    """Return what genes (m, 2n) mean: n order keys and n value keys; of more than `most` steps the first.

    Active actions run by ascending order key, ties by number.
    """
    n = len(possible)
    keys, active = genes[:, :n], genes[:, :n] <= ACTIVE
    order = np.argsort(np.where(active, keys, 2.0), axis=1, kind="stable")[:, :most]
    done = np.take_along_axis(active, order, axis=1)
    values = possible.values(order, np.take_along_axis(genes[:, n:], order, axis=1))
    return Ordered(np.where(done, order, -1), np.where(done, values, 0.0))


def encoded(sequences: Ordered, possible: Possible) -> Floats:
    """Return genes (m, 2n) that mean these sequences."""
    m, n = len(sequences), len(possible)
    keys, shares = np.ones((m, n)), np.full((m, n), 0.5)
    for place in range(sequences.actions.shape[1]):
        rows = np.flatnonzero(sequences.actions[:, place] >= 0)
        actions = sequences.actions[rows, place]
        keys[rows, actions] = ACTIVE * (place + 1) / (sequences.actions.shape[1] + 1)
        shares[rows, actions] = possible.shares(actions, sequences.values[rows, place])
    return np.concatenate([keys, shares], axis=1)
