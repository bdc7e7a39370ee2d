"""What sequences of actions lead to, and what that is worth (CSCF sections 3 and 5); no state is scored twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import moocore
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.cscf.possible import Ordered, Possible
from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.plans.walk import Walker
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance, Budget, Problem
from mlflow_cf.search.population import batches, row_keys

UNIT = 1e-4  # efforts are rounded to multiples of it, as the published code does
LACKING = 1e100
PLACES = 2  # decimals of Gower's distance
CELLS: Final = 2**17  # features of the sequences that are evaluated between two looks at the clock: 20 ms
UNKNOWN: Final = 9  # violations of what nobody looked at, more than anything else has
MOST_OBJECTIVES: Final = 255  # that moocore compares


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Sequences with where they lead.

    Attributes:
        sequences: the m sequences.
        states: (m, d) where each ends, or stops.
        objectives: (m, 2 + c) cost, Gower's distance, and how many steps changed each feature that some action sets;
            infinite where a step cannot be done.
        violations: (m,) how much is wrong: nothing done, a step that cannot be done, an end that meets no constraints,
            one that is not as wanted.
        grade: (m,) in [0, 1], how near the model is to what is wanted; -1 where it was not asked.
    """

    sequences: Ordered
    states: Floats
    objectives: Floats
    violations: Ints
    grade: Floats

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def feasible(self) -> Bools:
        """(m,) which are plans."""
        plans: Bools = self.violations == 0
        return plans

    @property
    def cost(self) -> Floats:
        """(m,) what each costs."""
        return self.objectives[:, 0]

    @property
    def worth(self) -> Floats:
        """(m,) what to make small: the cost of plans; of all else what it lacks, which is more than any cost."""
        return np.where(self.feasible, self.cost, LACKING * (2.0 - self.grade))

    @property
    def lengths(self) -> Ints:
        """(m,) number of steps."""
        steps: Ints = (self.sequences.actions >= 0).sum(axis=1)
        return steps

    def take(self, rows: Ints) -> Evaluated:
        """Return some of them."""
        sequences, states = self.sequences.take(rows), self.states[rows]
        return Evaluated(sequences, states, self.objectives[rows], self.violations[rows], self.grade[rows])

    @classmethod
    def together(cls, parts: Sequence[Evaluated]) -> Evaluated:
        """Return all of several, one after the other."""
        most = max(part.sequences.actions.shape[1] for part in parts)
        padded = [_padded(part.sequences, most) for part in parts]
        sequences = Ordered(
            np.concatenate([one.actions for one in padded]), np.concatenate([one.values for one in padded])
        )
        return cls(
            sequences,
            np.concatenate([part.states for part in parts]),
            np.concatenate([part.objectives for part in parts]),
            np.concatenate([part.violations for part in parts]),
            np.concatenate([part.grade for part in parts]),
        )

    def ranked(self) -> Ints:
        """Return the order by cost, Gower's distance, and number of steps."""
        order: Ints = np.lexsort((self.lengths, self.objectives[:, 1], self.objectives[:, 0]))
        return order


def _padded(sequences: Ordered, most: int) -> Ordered:
    if sequences.actions.shape[1] == most:
        return sequences
    left = ((0, 0), (0, most - sequences.actions.shape[1]))
    return Ordered(
        np.pad(sequences.actions, left, constant_values=-1), np.pad(sequences.values, left, constant_values=0.0)
    )


@dataclass(eq=False)
class Evaluator:
    """Evaluates sequences for one row, and scores no state twice.

    Attributes:
        problem: the row to explain; possible: what can be done with it.
        budget: what may be scored; rounded: whether efforts and Gower's distance are rounded.
    """

    problem: Problem
    possible: Possible
    budget: Budget
    rounded: bool
    _short: bool = False  # of evaluations: not all were scored

    def __post_init__(self) -> None:
        self.walker = Walker(self.possible.action_model, self.problem.x0, UNIT if self.rounded else 0.0)
        self._gower = BoundDistance.bind(Distance(0.0, 1.0, 0.0), self.problem.space)
        self._columns = np.arange(len(self.problem.space))
        self._memory = Memory()
        self._done = np.zeros(len(self.possible), dtype=np.bool_)

    def evaluate(self, sequences: Ordered, *, all_of_them: bool = False) -> Evaluated:
        """Return where sequences lead.

        Where not `all_of_them`, ends that cannot be answers anyway are not scored, and count as not wanted. What the
        budget leaves no room for counts as what cannot be done.
        """
        size = self.at_once
        parts = [self._evaluated(sequences.take(np.arange(min(size, len(sequences)))), all_of_them=all_of_them)]
        for start in range(size, len(sequences), size):
            if self.cut:
                parts.append(self._unknown(sequences.take(np.arange(start, len(sequences))), parts[0]))
                break
            some = sequences.take(np.arange(start, min(start + size, len(sequences))))
            parts.append(self._evaluated(some, all_of_them=all_of_them))
        return Evaluated.together(parts) if len(parts) > 1 else parts[0]

    def _unknown(self, sequences: Ordered, other: Evaluated) -> Evaluated:
        """Return sequences that nobody looked at, beside others that somebody did."""
        count = len(sequences)
        states = np.tile(self.problem.x0, (count, 1))
        objectives = np.full((count, other.objectives.shape[1]), np.inf)
        return Evaluated(sequences, states, objectives, np.full(count, UNKNOWN), np.full(count, -1.0))

    def _evaluated(self, sequences: Ordered, *, all_of_them: bool) -> Evaluated:
        ends = self.walker.walk(sequences.actions, sequences.values)
        self._done[sequences.actions[np.arange(sequences.actions.shape[1]) < ends.steps[:, None]]] = True
        lawful = np.zeros(len(sequences), dtype=np.bool_)
        done = np.flatnonzero(ends.valid)
        lawful[done] = self.problem.check(ends.states[done])
        violations = (sequences.actions[:, 0] < 0).astype(np.int64)  # nothing is done
        violations += ~ends.valid & (violations == 0)
        violations += ends.valid & ~lawful
        scored = ends.steps > 0 if all_of_them else ends.valid & lawful
        wanted, grade = np.zeros(len(sequences), dtype=np.bool_), np.full(len(sequences), -1.0)
        wanted[scored], grade[scored] = self._rated(ends.states[scored])
        violations += ~wanted
        often = ends.often[:, self.possible.columns]
        objectives = np.full((len(sequences), 2 + often.shape[1]), np.inf)
        objectives[done] = np.column_stack([ends.cost[done], self.gower(ends.states[done]), often[done]])
        return Evaluated(sequences, ends.states, objectives, violations, grade)

    @property
    def at_once(self) -> int:
        """How many sequences are followed between two looks at the clock."""
        return max(1, CELLS // len(self.problem.space))

    @property
    def cut(self) -> bool:
        """Whether the budget has ended, by its evaluations or by the clock, which walks of long plans use up too."""
        return self._short or self.budget.late

    @property
    def inactive(self) -> list[str]:
        """The actions that could not be done in any sequence so far."""
        return [action.name for action, done in zip(self.possible.actions, self._done, strict=True) if not done]

    def gower(self, states: Floats) -> Floats:
        """Return Gower's distance (m,) of states (m, d) from the row."""
        mean: Floats = self._gower.changes(self._columns, states, self.problem.x0).mean(axis=1)
        return np.round(mean, PLACES) if self.rounded else mean

    def _rated(self, states: Floats) -> tuple[Bools, Floats]:
        """Return (m,) which states (m, d) the model says what is wanted of, and how near it is to that.

        What the budget leaves no room for is not wanted.
        """
        found = self._memory.facts(row_keys(states), lambda fresh: self._scored(states[fresh]), (0.0, -1.0))
        return found[:, 0] > 0, found[:, 1]

    def _scored(self, states: Floats) -> Floats:
        """Return (m, 2) the same of states (m, d) never met before, as far as the budget goes."""
        ratings = [np.empty((0, 2))]
        for part in batches(len(states), self.budget):
            rating = self.problem.rate(states[part])
            ratings.append(np.column_stack([rating.favourable, rating.grade]))
        rated = np.concatenate(ratings)
        self._short |= len(rated) < len(states)
        return rated


def answers_among(evaluator: Evaluator, parts: Sequence[Evaluated]) -> Evaluated:
    """Return the plans of several lots worth telling, cheapest first, of each end the cheapest.

    No other one beats them in the objectives, or in cost, number of steps and number of changed features: the first
    alone would leave out the cheapest plan of few steps where a longer one changes features less often.
    """
    plans = Evaluated.together(parts)
    plans = plans.take(np.flatnonzero(plans.feasible))
    plans = plans.take(plans.ranked())
    if not len(plans):
        return plans
    _, first = np.unique(row_keys(plans.states + 0.0), return_index=True)  # -0 is 0
    plans = plans.take(np.sort(first))
    changed = differing(plans.states, evaluator.problem.x0).sum(axis=1)
    short = moocore.is_nondominated(np.column_stack([plans.cost, plans.lengths, changed]))
    return plans.take(np.flatnonzero(unbeaten(plans.objectives) | short))


def front(evaluated: Evaluated) -> Evaluated:
    """Return the plans that no other one beats in one objective without being worse in another; equal ones once."""
    plans = evaluated.take(np.flatnonzero(evaluated.feasible))
    plans = plans.take(plans.ranked())
    if len(plans) < 2:
        return plans
    _, first = np.unique(plans.objectives, axis=0, return_index=True)
    plans = plans.take(np.sort(first))
    return plans.take(np.flatnonzero(unbeaten(plans.objectives)))


def unbeaten(objectives: Floats, *, keep_weakly: bool = False) -> Bools:
    """Return (m,) which of several rows of objectives (m, k) no other one beats; with `keep_weakly` all equal ones.

    Objectives in which all are equal decide nothing. Of very many the last ones count by their sum.
    """
    told = objectives[:, (objectives != objectives[:1]).any(axis=0)]
    told = objectives[:, :1] if not told.shape[1] else told
    if told.shape[1] > MOST_OBJECTIVES:
        told = np.column_stack([told[:, : MOST_OBJECTIVES - 1], told[:, MOST_OBJECTIVES - 1 :].sum(axis=1)])
    found: Bools = moocore.is_nondominated(told, keep_weakly=keep_weakly)
    return found


ROOM: Final = 4_096  # entries that there is room for at first


class Memory:
    """Two facts about each of many states."""

    def __init__(self) -> None:
        """Start with none."""
        self._places: defaultdict[int, int] = defaultdict(count().__next__)  # in the order in which they are met
        self._facts: Floats = np.empty((ROOM, 2))

    def facts(self, keys: NDArray[np.uint64], ask: Callable[[Ints], Floats], otherwise: tuple[float, float]) -> Floats:
        """Return what is known (m, 2) about the states of keys (m,).

        Args:
            keys: of the states.
            ask: what finds out (n, 2) about states met for the first time, given where their keys stand; it may leave
                out the last ones.
            otherwise: what holds for those that it has left out, from then on.
        """
        before = len(self._places)
        found = np.fromiter(map(self._places.__getitem__, keys.tolist()), np.int64, len(keys))
        fresh = np.flatnonzero(found >= before)
        if len(fresh):
            _, first = np.unique(found[fresh], return_index=True)
            told = ask(fresh[first])
            self._make_room(len(self._places))
            self._facts[before : len(self._places)] = otherwise
            self._facts[before : before + len(told)] = told
        return self._facts[found]

    def _make_room(self, entries: int) -> None:
        if entries > len(self._facts):
            more = np.empty((max(entries, 2 * len(self._facts)), 2))
            more[: len(self._facts)] = self._facts
            self._facts = more
