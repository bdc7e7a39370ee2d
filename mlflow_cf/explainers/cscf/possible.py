"""What can be done with one row: the actions that may lead to a counterfactual, and the values each can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.plans.bound import BoundAction, derived
from mlflow_cf.plans.course import Course, Declared
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.plans.relations import Relations
from mlflow_cf.problem import Group, Problem

Columns = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Possible:
    """The actions of one row, with finite values.

    Attributes:
        course: what they do; dropped: name -> why an action was left out.
    """

    course: Course
    dropped: dict[str, str]

    def __len__(self) -> int:
        return len(self.course.actions)

    @property
    def actions(self) -> tuple[BoundAction, ...]:
        """The actions."""
        return self.course.actions

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

    @cached_property
    def columns(self) -> Columns:
        """The columns that some action sets, ascending."""
        return np.array(sorted({column for action in self.actions for column in action.columns}), dtype=np.intp)

    def values(self, shares: Floats) -> Floats:
        """Return the values (m, n) that shares (m, n) in [0, 1] of their ranges stand for (section 4, step 3)."""
        values: Floats = self.low + shares * self.width
        for number in np.flatnonzero(self.sizes).tolist():
            size = int(self.sizes[number])
            choices = self.actions[number].choices
            places = np.minimum((shares[:, number] * size).astype(np.intp), size - 1)
            values[:, number] = 0.0 if choices is None else choices[places]
        return values

    def shares(self, numbers: Ints, values: Floats) -> Floats:
        """Return the shares (m,) of their ranges that values (m,) of actions (m,) stand for."""
        shares = (values - self.low[numbers]) / np.where(self.width[numbers] > 0, self.width[numbers], 1.0)
        for number in np.flatnonzero(self.sizes).tolist():
            choices, rows = self.actions[number].choices, np.flatnonzero(numbers == number)
            if choices is not None:
                shares[rows] = ((values[rows, None] == choices).argmax(axis=1) + 0.5) / len(choices)
        return shares


def possible(problem: Problem, least_change: dict[str, float], *, discounts: bool) -> Possible:
    """Return what can be done with a row: actions as declared, or one per mutable feature (section 6)."""
    nothing = Course(problem.space, (), Relations(), problem.bound_distance, Declared())
    course = problem.course or nothing
    mutable = {column for group in problem.groups if _mutable(group) for column in group.columns}
    actions: Sequence[BoundAction] = course.actions or derived(problem.space, sorted(mutable))
    setters = Counter(column for action in actions for column in action.columns)
    kept, dropped = list[BoundAction](), dict[str, str]()
    for action in actions:
        fixed = [problem.space.names[column] for column in action.columns if column not in mutable]
        finite = _finite(action, problem, alone=setters[action.column] == 1)
        if fixed:
            dropped[action.name] = f"{fixed[0]} cannot change"
        elif finite.choices is None and not finite.low < finite.high:
            dropped[action.name] = f"{problem.space.names[action.column]} has a single value"
        else:
            kept.append(finite)
    relations = course.relations if discounts else Relations()
    return Possible(replace(course, actions=tuple(kept), relations=relations, least_change=least_change), dropped)


def _mutable(group: Group) -> bool:
    return group.proposals > 0 or (group.interval is not None and group.interval[0] < group.interval[1])


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
    interval = problem.groups[problem.owner[action.column]].interval
    if alone and interval is not None and np.isfinite(own):
        least, most = (interval[0] - own, interval[1] - own) if changes else interval
        low, high = max(low, least), min(high, most)
    return replace(action, low=low, high=high)
