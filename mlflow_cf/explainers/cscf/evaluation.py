"""What sequences of actions lead to, and what that is worth (CSCF sections 3 and 5); no state is scored twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import moocore
import numpy as np

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
        states, objectives, violations, grade = (
            np.concatenate(arrays)
            for arrays in zip(*((p.states, p.objectives, p.violations, p.grade) for p in parts), strict=True)
        )
        return cls(Ordered.together([part.sequences for part in parts]), states, objectives, violations, grade)

    def plans(self) -> Evaluated:
        """Return those that are plans, by cost, Gower's distance, and number of steps."""
        order = np.lexsort((self.lengths, self.objectives[:, 1], self.cost))
        return self.take(order[self.feasible[order]])


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

    def __post_init__(self) -> None:
        self.walker = Walker(self.possible.action_model, self.problem.x0, UNIT if self.rounded else 0.0)
        self._gower = BoundDistance.bind(Distance(0.0, 1.0, 0.0), self.problem.space)
        self._columns = np.arange(len(self.problem.space))
        self._places: defaultdict[int, int] = defaultdict(count().__next__)  # of states, in the order they are met
        self._ratings = np.empty((0, 2))  # at these places: whether a state is as wanted, and its grade
        self._short = False  # of evaluations: not all were scored
        self._done = np.zeros(len(self.possible), dtype=np.bool_)

    def evaluate(self, sequences: Ordered, *, all_of_them: bool = False) -> Evaluated:
        """Return where sequences lead.

        Where not `all_of_them`, ends that cannot be answers anyway are not scored, and count as not wanted. What the
        budget leaves no room for counts as what cannot be done.
        """
        size = self.at_once
        parts = [self._evaluated(sequences.take(slice(size)), all_of_them=all_of_them)]
        for start in range(size, len(sequences), size):
            if self.cut:
                left = sequences.take(slice(start, None))
                states = np.tile(self.problem.x0, (len(left), 1))
                objectives = np.full((len(left), parts[0].objectives.shape[1]), np.inf)
                nothing = np.full(len(left), UNKNOWN), np.full(len(left), -1.0)
                parts.append(Evaluated(left, states, objectives, *nothing))
                break
            parts.append(self._evaluated(sequences.take(slice(start, start + size)), all_of_them=all_of_them))
        return Evaluated.together(parts) if len(parts) > 1 else parts[0]

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
        gower = self._gower.changes(self._columns, ends.states[done], self.problem.x0).mean(axis=1)
        gower = np.round(gower, PLACES) if self.rounded else gower
        objectives[done] = np.column_stack([ends.cost[done], gower, often[done]])
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

    def _rated(self, states: Floats) -> tuple[Bools, Floats]:
        """Return (m,) which states (m, d) the model says what is wanted of, and how near it is to that.

        What the budget leaves no room for is not wanted, from then on.
        """
        places = np.fromiter(map(self._places.__getitem__, row_keys(states).tolist()), np.int64, len(states))
        fresh = np.flatnonzero(places >= len(self._ratings))
        if len(fresh):
            fresh = fresh[np.unique(places[fresh], return_index=True)[1]]
            ratings, left = [self._ratings], len(fresh)
            for part in batches(len(fresh), self.budget):
                rating = self.problem.rate(states[fresh[part]])
                ratings.append(np.column_stack([rating.favourable, rating.grade]))
                left -= len(rating.grade)
            self._short |= left > 0
            self._ratings = np.concatenate([*ratings, np.tile([0.0, -1.0], (left, 1))])
        found = self._ratings[places]
        return found[:, 0] > 0, found[:, 1]


def answers_among(evaluator: Evaluator, parts: Sequence[Evaluated]) -> Evaluated:
    """Return the plans of several lots worth telling, cheapest first, of each end the cheapest.

    No other one beats them in the objectives, or in cost, number of steps and number of changed features: the first
    alone would leave out the cheapest plan of few steps where a longer one changes features less often.
    """
    plans = Evaluated.together(parts).plans()
    if not len(plans):
        return plans
    _, first = np.unique(row_keys(plans.states + 0.0), return_index=True)  # -0 is 0
    plans = plans.take(np.sort(first))
    changed = differing(plans.states, evaluator.problem.x0).sum(axis=1)
    short = moocore.is_nondominated(np.column_stack([plans.cost, plans.lengths, changed]))
    return plans.take(np.flatnonzero(unbeaten(plans.objectives) | short))


def front(evaluated: Evaluated) -> Evaluated:
    """Return the plans that no other one beats in one objective without being worse in another; equal ones once."""
    plans = evaluated.plans()
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
