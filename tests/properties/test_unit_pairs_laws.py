"""Pairs of changes of linear models and networks against scoring all pairs, and larger sets against all subsets."""

from itertools import combinations

import numpy as np
from forest_worlds import opened_problem
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from people import CONSTRAINTS, people, wrapped

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.larger_sets import sets_within
from mlflow_cf.explainers.geco.around import CLOSE
from mlflow_cf.problem import Budget
from mlflow_cf.rounding import loose

DOUBT = CLOSE + thresholds.SWEPT


class EveryPair:
    """All pairs of changes of a row that may meet the target, by the structure's scores of whole rows."""

    def __init__(self, few):
        problem, actions, scorer = few.problem, few.actions, few.scorer
        changes = np.flatnonzero(actions.code != problem.own[actions.group])
        singles = actions.candidates(changes[:, None])
        may, sure = self.judged(few, singles)
        lawful = problem.held(singles) & problem.check(problem.rows(singles))
        may_alone, enough = (np.zeros(len(actions.code), dtype=bool) for _ in range(2))
        may_alone[changes], enough[changes] = may, sure & lawful
        self.alone = {actions.group[at]: np.inf for at in changes}
        for at, far in zip(changes, problem.distance(singles), strict=True):
            if enough[at]:
                self.alone[actions.group[at]] = min(self.alone[actions.group[at]], far)
        at = [(a, b) for a, b in combinations(changes.tolist(), 2) if actions.group[a] != actions.group[b]]
        self.at = np.array(at, dtype=np.intp).reshape(-1, 2)
        self.codes = actions.candidates(self.at)
        self.may, sure = self.judged(few, self.codes)
        self.far, self.held = problem.distance(self.codes), problem.held(self.codes)
        self.certain = sure & self.held & problem.check(problem.rows(self.codes))
        self.needed = ~enough[self.at].any(axis=1)
        self.open = may_alone[self.at].any(axis=1)
        self.sets = np.sort(actions.group[self.at], axis=1)
        self.scorer = scorer

    @staticmethod
    def judged(few, codes):
        if not len(codes):
            return np.zeros((2, 0), dtype=bool)
        return few.scorer.decisions(few.scorer.structure.sums(few.problem.encoded(codes)), DOUBT)

    def of_sets(self, count):
        """Return the pairs that may be the first answer of their changed set, where so many sets are wanted."""
        first = {tuple(pair): np.inf for pair in self.sets.tolist()}
        for at in np.flatnonzero(self.certain & self.needed & ~self.open).tolist():
            pair = tuple(self.sets[at].tolist())
            first[pair] = min(first[pair], self.far[at])
        known = sorted([*first.values(), *self.alone.values()])
        limit = known[count - 1] if len(known) >= count else np.inf
        limits = np.array([loose(min(limit, first[tuple(pair)])) for pair in self.sets.tolist()])
        return self.codes[self.may & self.held & self.needed & (self.far <= limits)] if len(limits) else self.codes


def rows_of(codes):
    return sorted(map(tuple, codes.tolist()))


kinds = st.sampled_from(["logistic", "network", "network value"])


def few_of(kind, seed, constraints, row, count):
    """Return what few changes of one of 40 people do, where its structure tells what pairs of them do."""
    query = people(seed + 300, 40).iloc[[row]]
    few = Engine(opened_problem(wrapped(kind, seed, constraints), query, count)).few
    return few if few is not None and few.tells_pairs else None


@dear(3)
@given(kinds, st.integers(0, 2), st.integers(0, len(CONSTRAINTS) - 2), st.integers(0, 39), st.integers(2, 5))
def test_pairs_that_may_be_answers_are_found(kind, seed, constraints, row, count):
    few = few_of(kind, seed, constraints, row, count)
    if few is None:
        return
    every = EveryPair(few)
    found = few.pairs(np.inf, CLOSE, Budget(10**9))
    expected = every.of_sets(count)
    assert (found is None) == (len(expected) > thresholds.MOST_FOUND) or few.problem.linking
    assert found is None or rows_of(found) == rows_of(expected)


@given(kinds, st.integers(0, 2), st.integers(0, 39))
def test_no_more_pairs_are_looked_at_than_asked(kind, seed, row):
    few = few_of(kind, seed, 0, row, 3)
    if few is not None:
        found = few.pairs(np.inf, CLOSE, Budget(10**9), most=0)
        assert found is None or not len(found)


costs = st.lists(st.integers(1, 12).map(float), min_size=1, max_size=10)


@given(costs, st.floats(0, 40), st.integers(2, 4), st.integers(1, 9))
def test_sets_within_a_limit_are_listed(each, limit, fewest, most):
    found = sets_within(np.array(each), limit, fewest, most)
    expected = [
        places
        for size in range(fewest, most + 1)
        for places in combinations(range(len(each)), size)
        if sum(each[place] for place in places) <= limit
    ]
    if len(expected) > thresholds.MOST_SETS:
        assert found is None
    else:
        assert sorted(tuple(np.flatnonzero(flags).tolist()) for flags in found) == sorted(expected)
