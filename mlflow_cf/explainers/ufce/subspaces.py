"""What each group may become, nearest first: admissible values, cut to what the neighbourhood spans (UFCE section 2).

The neighbourhood is made of the favourable background rows around the row to explain. Also which groups can bring the
model to the target together, by the bounds of what was opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import meets
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Group, Problem
from mlflow_cf.problem.points import limits, with_values
from mlflow_cf.search.cascade import Cascade, alone
from mlflow_cf.structures.capabilities import Boxes, boxes_of

STEPS: Final = 100  # of a continuous number, if no step is given
MOST_STEPS: Final = 2_000


LEAST: Final = 10  # rows of a neighbourhood
SHARE: Final = 0.05  # or so many of all favourable rows


def neighbourhood(problem: Problem, labels: Floats, points: tuple[Floats, Floats], radius: float | None) -> Floats:
    """Return the favourable rows (k, d) in a ball around the row to explain; none where no row is favourable.

    A row counts that has the wanted label and that the model predicts favourable; where there is none, one that is
    predicted favourable alone. One look at every row takes less time than a tree that looks at a twentieth of them.

    Args:
        problem: the row to explain.
        labels: (n,) of the background rows.
        points: background rows (n, width) and the row (width,) as vectors.
        radius: of the ball; None: the smallest that holds ten rows and 5 % of all. An empty ball becomes that of ten.
    """
    predicted = problem.rate_background().favourable
    wanted = predicted if problem.target is None else predicted & meets(labels, problem.target)
    rows = np.flatnonzero(wanted if wanted.any() else predicted)
    vectors, own = points
    away = np.sqrt(((vectors[rows] - own) ** 2).sum(axis=1))
    if len(rows) and (radius is None or not (away <= radius).any()):
        least = LEAST if radius is not None else max(LEAST, int(np.ceil(SHARE * len(rows))))
        radius = np.partition(away, min(least, len(rows)) - 1)[min(least, len(rows)) - 1]
    return np.asarray(problem.background[rows[away <= radius]])


@dataclass(frozen=True, eq=False)
class Sequence:
    """Tuples of one group in the order in which they are tried.

    Attributes:
        group: its number.
        codes: (t,) one tuple or more, the nearest first.
        walks: whether they are numbers that move away from the row's own in one direction.
    """

    group: int
    codes: Codes
    walks: bool


@dataclass(frozen=True, eq=False)
class Subspaces:
    """What the groups of a problem may become.

    Attributes:
        sequences: those of every group; none of one that keeps its tuple.
        ends: (2, G) lowest and highest code of groups of one number, the row's own included; NaN of others.
    """

    sequences: tuple[tuple[Sequence, ...], ...]
    ends: Floats

    @classmethod
    def of(cls, problem: Problem, near: Floats) -> Subspaces:
        """Return what every group may become, given the favourable rows (k, d) around the row to explain.

        Numbers move away from the row's own; levels come first that most of these rows have; tuples, the nearest.
        """
        ends = np.full((2, len(problem.groups)), np.nan)
        sequences: list[tuple[Sequence, ...]] = []
        for number, group in enumerate(problem.groups):
            codes, found = _others(group), tuple[Sequence, ...]()
            if group.proposals and len(group.columns) == 1 and problem.space.features[group.columns[0]].has_order:
                found, ends[:, number] = _numbers(problem, number, codes, near)
            elif group.proposals:
                if len(group.columns) == 1:
                    order = -(near[:, group.columns[0], None] == group.actions[codes, 0]).sum(axis=0)
                else:
                    order = alone(problem, number)[codes]
                found = (Sequence(number, codes[np.argsort(order, kind="stable")], walks=False),)
            sequences.append(tuple(values for values in found if len(values.codes)))
        return cls(tuple(sequences), ends)

    @property
    def groups(self) -> list[int]:
        """The groups that may change."""
        return [number for number, some in enumerate(self.sequences) if some]


def interval(limits: tuple[float, float], near: tuple[float, float], own: float) -> tuple[float, float]:
    """Return where a number is searched: inside its limits, and no farther than near rows reach on either side.

    The row's own value is always as far as they reach.
    """
    (low, high), (first, last) = limits, near
    return max(low, min(first, own)), min(high, max(last, own))


def _numbers(
    problem: Problem, number: int, codes: Codes, near: Floats
) -> tuple[tuple[Sequence, ...], tuple[float, float]]:
    """Return the values of some codes above and below a number's own, and its ends."""
    group, (column,) = problem.groups[number], problem.groups[number].columns
    own, values = float(problem.x0[column]), group.actions[codes, 0]
    known = near[~np.isnan(near[:, column]), column]
    if not len(codes):
        return (), (own, own)
    if not own < problem.space.features[column].unknown_from:  # missing, or a level without a rank
        middle = np.median(known if len(known) else values)
        ordered = codes[np.argsort(np.abs(values - middle), kind="stable")]
        return (Sequence(number, ordered, walks=False),), (float(values.min()), float(values.max()))
    bounds = (min(own, float(values.min())), max(own, float(values.max())))
    span = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
    low, high = interval(bounds, span, own) if len(near) else bounds
    inside = (values >= low) & (values <= high)
    if not inside.any() and not group.own_allowed:  # it must change
        inside, (low, high) = np.ones(len(values), dtype=np.bool_), bounds
    above, below = codes[inside & (values > own)], codes[inside & (values < own)][::-1]
    return (Sequence(number, above, walks=True), Sequence(number, below, walks=True)), (low, high)


def _others(group: Group) -> Codes:
    """Return the tuples other than its own that a group may take, none with a missing value that is known now."""
    known = ~np.isnan(group.actions) | np.isnan(group.actions[group.own])
    known[group.own] = False
    return np.flatnonzero(known.all(axis=1))


def with_steps(problem: Problem, steps: Mapping[str, float]) -> Problem:
    """Return the problem with the values of continuous numbers that are so many steps from the row's own.

    Args:
        problem: the row to explain.
        steps: by feature, in the column's unit; by default 1 % of what the number may be. There are 2,000 at most.
    """
    values = {}
    for number, group in enumerate(problem.groups):
        if group.interval is not None:
            low, high = limits(problem, group)
            own = float(problem.x0[group.columns[0]])
            step = steps.get(problem.space.names[group.columns[0]], (high - low) / STEPS)
            values[number] = _stepped((low, high), low if np.isnan(own) else own, step)
    return with_values(problem, values) if values else problem


def _stepped(ends: tuple[float, float], own: float, step: float) -> Floats:
    low, high = ends
    if not high > low or not step > 0:
        return np.array(ends)
    step = max(step, (high - low) / MOST_STEPS)
    first, last = np.ceil((low - own) / step), np.floor((high - own) / step)
    inner = own + np.arange(first, last + 1) * step
    return np.unique(np.concatenate([[low], inner[(inner >= low) & (inner <= high)], [high]]))


MOST_FLAGS: Final = 2**22  # of the boxes that are bounded in one go: 4 MB
AT_ONCE: Final = 64  # sets of groups
CLOSE: Final = 1e-4  # to the target: scores of what was opened are off by less
Groups = TypeVar("Groups", bound=Collection[int])


class ReachableSets:
    """Bounds on all candidates that change some groups of a problem within its subspaces."""

    def __init__(self, problem: Problem, subspaces: Subspaces, budget: Budget) -> None:
        """Set up; nothing is bounded yet."""
        self._problem, self._budget = problem, budget
        self._moved = Cascade(problem).steps  # the groups that candidates may be repaired in
        self._codes: list[Codes] = []  # what each group may become, its own tuple first; all if repairs may move it
        for number, own in enumerate(problem.own.tolist()):
            every = np.arange(len(problem.groups[number].actions))
            within = [values.codes for values in subspaces.sequences[number]]
            others = every[every != own] if number in self._moved else np.concatenate([*within, every[:0]])
            self._codes.append(np.append(own, others))
        sizes = np.array([len(codes) for codes in self._codes])[problem.owner]
        self._group = np.repeat(problem.owner, sizes)  # (choices,) of every choice, column after column
        self._own = np.zeros(len(self._group), dtype=np.bool_)  # (choices,) which of them are the row's own
        self._own[np.cumsum(sizes) - sizes] = True

    def of(self, sets: tuple[Groups, ...] | list[Groups]) -> Iterator[Groups]:
        """Yield the sets of groups whose values may meet the target; all where no structure tells.

        It ends early where the budget is spent.
        """
        if self._problem.scorer is None:
            yield from sets
            return
        size = max(1, min(AT_ONCE, MOST_FLAGS // len(self._group)))
        for start in range(0, len(sets), size):
            if self._budget.spent:
                return
            part = sets[start : start + size]
            low, high = self._boxes.bounds(np.stack([self._mask(each) for each in part]))
            reached = ~(self._problem.scorer.upper_bound(low, high, CLOSE) < 0)  # not where it is no number
            yield from (part[at] for at in np.flatnonzero(reached).tolist())

    def _mask(self, groups: Collection[int]) -> Bools:
        """Return (choices,) the row's own, and all those of some groups and of groups that rules may move."""
        free = np.zeros(len(self._problem.groups), dtype=np.bool_)
        free[[*groups, *self._moved]] = True
        return self._own | free[self._group]

    @cached_property
    def _boxes(self) -> Boxes:
        problem = self._problem
        assert problem.scorer is not None  # noqa: S101  told apart before
        tables = zip(problem.encoded_tables, problem.owner.tolist(), strict=True)
        return boxes_of(problem.scorer.structure, [table[self._codes[number]] for table, number in tables])
