"""The action cascade: repair candidates until all rules hold, or reject them (GeCo section 3.4).

Also weighted draws of codes, many rows at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, JointRule, Problem
from mlflow_cf.problem.points import limits, with_values

MOST_ROWS = 200_000  # rows built at once when all actions of a group are tried


class Cascade:
    """Repairs candidates of one problem.

    Groups are visited in topological order. A group that must change gets another action; a group that a rule defines
    which fails gets an action for which all rules that define it hold: the row's own if they do for it, else one drawn
    by frequency, or without `rng` the nearest. Afterwards all rules are checked, also those that define nothing, and
    candidates that break one are dropped.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator | None = None) -> None:
        self.problem, self.rng = problem, rng
        owner = {column: number for number, columns in enumerate(problem.columns) for column in columns}
        self.joint_rules = problem.joint_rules
        self.defining: dict[int, list[JointRule]] = {}
        for joint in self.joint_rules:
            if joint.rule.defines is not None:
                self.defining.setdefault(owner[joint.rule.defines], []).append(joint)
        # all other groups are left as they are
        self.steps = [n for n in problem.order if n in self.defining or not problem.groups[n].own_allowed]
        # the groups whose values decide which actions of a group qualify
        self.context = {
            number: sorted({other for joint in joint_rules for other in joint.groups} - {number})
            for number, joint_rules in self.defining.items()
        }

    def repair(self, codes: Codes) -> Codes:
        """Return the candidates (m, G) repaired; without those that cannot be, or that equal the row."""
        codes, kept = self.repaired(codes)
        return np.asarray(codes[kept])

    def repaired(self, codes: Codes) -> tuple[Codes, Bools]:
        """Return all candidates (m, G), repaired as far as they can be, and which of them `repair` returns."""
        codes = codes.copy()
        kept = np.ones(len(codes), dtype=np.bool_)
        for number in self.steps:
            self._change_if_must(codes, number, kept)
            if number in self.defining:
                self._satisfy(codes, number, kept)
        for joint in self.joint_rules:
            kept &= joint.holds(codes)
        kept &= (codes != self.problem.own).any(axis=1) & (self.problem.changes_left(codes) >= 0)
        return codes, kept

    def _change_if_must(self, codes: Codes, number: int, kept: Bools) -> None:
        group = self.problem.groups[number]
        if group.own_allowed:
            return
        stuck = np.flatnonzero(codes[:, number] == group.own)
        if not len(stuck):
            return
        if not group.proposals:  # no draw of a continuous feature met its rules
            kept[stuck] = False
        else:
            drawable = np.arange(len(group.weights))[None, :] != group.own
            codes[stuck, number] = self._chosen(drawable, np.zeros(len(stuck), dtype=np.intp), number)

    def _satisfy(self, codes: Codes, number: int, kept: Bools) -> None:
        """Give a new action to candidates that break a rule defining this group; mark those that have none."""
        problem, group = self.problem, self.problem.groups[number]
        holds = np.ones(len(codes), dtype=np.bool_)
        for joint in self.defining[number]:
            holds &= joint.holds(codes)
        broken = np.flatnonzero(~holds & kept)
        if not len(broken):
            return
        first, which = _distinct(codes[broken][:, self.context[number]])
        qualifies = self._qualifying(problem.rows(codes[broken[first]]), number)
        back = qualifies[which, group.own] & group.own_allowed
        codes[broken[back], number] = group.own
        drawable: Bools = qualifies & (group.weights > 0)
        possible = ~back & np.any(drawable, axis=1)[which]
        codes[broken[possible], number] = self._chosen(drawable, which[possible], number)
        kept[broken[~back & ~possible]] = False

    def _chosen(self, drawable: Bools, rows: Codes, number: int) -> Codes:
        """Return an action of a group for every entry of `rows`, among those that may be drawn (u, t) in that row."""
        group = self.problem.groups[number]
        if self.rng is not None:
            return draw_by_row(np.where(drawable, group.weights, 0.0), rows, self.rng)
        nearest: Codes = np.where(drawable, alone(self.problem, number), np.inf).argmin(axis=1)
        return nearest[rows]

    def _qualifying(self, contexts: Floats, number: int) -> Bools:
        """Return (u, t) whether each action of a group meets its defining rules beside the rest of each row (u, d)."""
        group, actions = self.problem.groups[number], len(self.problem.groups[number].actions)
        step = max(1, MOST_ROWS // actions)
        parts: list[NDArray[np.bool_]] = []
        for start in range(0, len(contexts), step):
            rows = np.repeat(contexts[start : start + step], actions, axis=0)
            rows[:, group.columns] = np.tile(group.actions, (len(rows) // actions, 1))
            holds = np.ones(len(rows), dtype=np.bool_)
            for joint in self.defining[number]:
                holds &= joint.rule.holds(rows, self.problem.x0)
            parts.append(holds.reshape(-1, actions))
        return np.concatenate(parts)


def _distinct(codes: Codes) -> tuple[Codes, Codes]:
    """Return the first of all equal rows of codes (m, k) for every row there is, and which of these each is (m,)."""
    sizes = codes.max(axis=0, initial=0) + 1
    if np.prod(sizes, dtype=np.float64) < np.iinfo(np.intp).max:  # numbers in the order of rows, sorted much faster
        strides = (np.cumprod(sizes[::-1]) // sizes[::-1])[::-1]
        _, first, which = np.unique(codes @ strides, return_index=True, return_inverse=True)
    else:
        _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first, which.ravel()


def alone(problem: Problem, number: int) -> Floats:
    """Return the distance (t,) from the row to each action of a group, where nothing else changes."""
    group = problem.groups[number]
    distance: Floats = group.cost + problem.bound_distance.c * group.peak
    return distance


UNIFORM_DRAWS = 500  # of a continuous number
FEW = 16  # codes per code drawn


def draw_distinct(weights: Floats, rows: int, size: int, rng: np.random.Generator) -> Codes:
    """Draw without replacement, with probability proportional to weight, independently for every row.

    Args:
        weights: (t,) weights >= 0; 0 is never drawn.
        rows: number of independent draws r.
        size: codes per draw; fewer if fewer have weight.
        rng: source of randomness.

    Returns:
        (r, min(size, number of positive weights)) codes.

    Draws with replacement are such a draw once repeated codes are left out. What too few of them leave open, the
    smallest of independent exponentials divided by the weights decide (Efraimidis and Spirakis 2006).
    """
    possible = np.flatnonzero(weights)
    if len(possible) <= size:
        return np.tile(possible, (rows, 1))
    drawn = np.empty((rows, size), dtype=np.intp)
    left = np.arange(rows)
    taken = np.zeros((rows, 0), dtype=np.intp)
    if len(possible) > FEW * size:  # else exponentials for all of them are as fast
        shares = weights[possible].cumsum()
        taken = (shares / shares[-1]).searchsorted(rng.random((rows, 2 * size)), side="right")
        order = np.argsort(taken, axis=1, kind="stable")
        ascending = np.take_along_axis(taken, order, axis=1)
        distinct = np.ones(taken.shape, dtype=np.bool_)
        np.put_along_axis(distinct, order[:, 1:], ascending[:, 1:] != ascending[:, :-1], axis=1)
        distinct &= distinct.cumsum(axis=1) <= size
        enough = distinct.sum(axis=1) == size
        drawn[enough] = taken[enough][distinct[enough]].reshape(-1, size)
        left = np.flatnonzero(~enough)
        taken = np.where(distinct, taken, taken[:, :1])[left]
    keys = rng.standard_exponential((len(left), len(possible))) / weights[possible]
    np.put_along_axis(keys, taken, -1.0, axis=1)  # first of all
    drawn[left] = np.argpartition(keys, size - 1, axis=1)[:, :size]
    return possible[drawn]


def draw_by_row(weights: Floats, rows: Codes, rng: np.random.Generator) -> Codes:
    """Draw one code for every entry of `rows`, from the weights of that row.

    Args:
        weights: (u, t) weights >= 0; rows that are asked for have a positive one.
        rows: (r,) which row of `weights` each draw uses.
        rng: source of randomness.
    """
    cumulative = weights.cumsum(axis=1)
    with np.errstate(invalid="ignore"):
        shares = cumulative / cumulative[:, -1:]
    # rows of shares end in 1; laid end to end they are one ascending line, on which every draw is one look-up
    line = (np.nan_to_num(shares) + np.arange(len(weights))[:, None]).ravel()
    # a draw just below 1 may round up to the next row's start; the last code with weight is meant then
    last = (cumulative < cumulative[:, -1:]).sum(axis=1)
    found = np.searchsorted(line, rows + rng.random(len(rows)), side="right") - rows * weights.shape[1]
    drawn: Codes = np.minimum(found, last[rows])
    return drawn


def with_draws(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem with uniform draws among the actions of its continuous features, half and half by weight."""
    if all(group.interval is None for group in problem.groups):
        return problem
    draws = {
        number: rng.uniform(*limits(problem, group), size=UNIFORM_DRAWS)
        for number, group in enumerate(problem.groups)
        if group.interval is not None
    }
    return with_values(problem, draws)
