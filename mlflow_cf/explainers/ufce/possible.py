"""Which groups can bring the model to the target together, by the bounds of what was opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.ufce.subspaces import Subspaces
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.structures.capabilities import Boxes, boxes_of

MOST_FLAGS: Final = 2**22  # of the boxes that are bounded in one go: 4 MB
AT_ONCE: Final = 64  # sets of groups
CLOSE: Final = 1e-4  # to the target: scores of what was opened are off by less
Groups = TypeVar("Groups", bound=Collection[int])


class ReachableSets:
    """Bounds on all candidates that change some groups of a problem within its subspaces."""

    def __init__(self, problem: Problem, subspaces: Subspaces, budget: Budget) -> None:
        """Set up; nothing is bounded yet."""
        self._problem, self._subspaces, self._budget = problem, subspaces, budget

    def of(self, sets: Sequence[Groups]) -> Iterator[Groups]:
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
    def _moved(self) -> tuple[int, ...]:
        """The groups that candidates may be repaired in."""
        return tuple(Cascade(self._problem).steps)

    @cached_property
    def _codes(self) -> list[Codes]:
        """What each group may become, its own tuple first; all its tuples if repairs may move it."""
        found = []
        for number, own in enumerate(self._problem.own.tolist()):
            every = np.arange(len(self._problem.groups[number].actions))
            within = [values.codes for values in self._subspaces.sequences[number]]
            others = every[every != own] if number in self._moved else np.concatenate([*within, every[:0]])
            found.append(np.append(own, others))
        return found

    @cached_property
    def _boxes(self) -> Boxes:
        problem = self._problem
        assert problem.scorer is not None  # noqa: S101  told apart before
        tables = zip(problem.encoded_tables, problem.owner.tolist(), strict=True)
        return boxes_of(problem.scorer.structure, [table[self._codes[number]] for table, number in tables])

    @cached_property
    def _group(self) -> Codes:
        """(choices,) the group of every choice, column after column."""
        owner = self._problem.owner.tolist()
        return np.repeat(np.array(owner), [len(self._codes[number]) for number in owner])

    @cached_property
    def _own(self) -> Bools:
        """(choices,) which of them are the row's own."""
        sizes = np.array([len(self._codes[number]) for number in self._problem.owner.tolist()])
        own = np.zeros(len(self._group), dtype=np.bool_)
        own[np.cumsum(sizes) - sizes] = True
        return own
