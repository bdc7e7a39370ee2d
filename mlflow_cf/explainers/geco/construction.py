"""Answers of several changes put together at once, where no single change suffices.

A candidate grows by the changes that bring most for their distance, as if what they bring added up (the relaxed
knapsack problem), until it is favourable; background rows that are favourable give up changes until none can be spared.
Then changes are exchanged as long as that comes nearer.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import Population, changed_sets
from mlflow_cf.search.snapping import codes_of, nearest_favourable_rows

RATED_AT_ONCE = 512  # candidates between two looks at the clock: some 20 ms in a forest over 300 features
MOST_STEPS = 20  # times that a candidate grows
MOST_ROUNDS = 30  # of thinning, and of exchanges
SEEDS = 20  # background rows that are thinned, where there are a few hundred groups or less
FEWEST_SEEDS = 2
MOST_CODES = 2**21  # of the rows with one change put back, of all seeds: 16 MB
EXCHANGED = 2  # members whose changes are exchanged, beside the wanted number


class Explored(Protocol):
    """A search that a construction leads.

    Attributes:
        population: the fittest candidates so far.
        cutoff: what is not nearer cannot become an answer.
    """

    problem: Problem
    budget: Budget
    population: Population
    cutoff: float

    @property
    def cascade(self) -> Cascade:
        """Repairs candidates."""
        ...

    def rate(self, codes: Codes) -> tuple[Bools, Floats]:
        """Return whether candidates (m, G) are favourable, and a merit (m,) that grows towards the target."""
        ...

    def merits(self, scored: Population) -> Floats:
        """Return the merit (m,) of scored candidates."""
        ...

    def need(self, merit: float) -> float:
        """Return what a merit lacks for the target; inf where that cannot be told."""
        ...

    def score(self, codes: Codes) -> Population:
        """Score lawful candidates (m, G) that are new and nearer than the cutoff, keep the fittest, and return all."""
        ...

    def singles(self, state: Codes, merit: float) -> KnapsackItems:
        """Score and keep candidates that differ from `state` (G,) in one group; return what each adds to its merit."""
        ...

    def around(self, members: Codes) -> None:
        """Score and keep candidates that differ from one of `members` (m, G) in one group."""
        ...


def start_of(problem: Problem, cascade: Cascade) -> Codes:
    """Return the row itself (1, G) where it breaks no rule, else repaired, if that can be (0 or 1, G)."""
    own = problem.own[None, :]
    lawful = all(group.own_allowed for group in problem.groups)
    return own if lawful and all(joint.holds(own)[0] for joint in cascade.joint_rules) else cascade.repair(own)


def grow(search: Explored, state: Codes, merit: float, single: KnapsackItems) -> None:
    """Let a start `state` (G,) grow by its single changes until it is favourable."""
    for _ in range(MOST_STEPS):
        need = search.need(merit)
        capped = single._replace(gain=np.minimum(single.gain, need))
        tried = [prefixes(steps, state, need) for steps in (by_ratio(capped), by_gain(capped))]
        scored = search.score(search.cascade.repair(np.concatenate(tried)))
        if scored.favourable.any() or not len(scored) or search.budget.spent:
            return
        merits = search.merits(scored)
        best = int(merits.argmax())
        if merits[best] <= merit:
            return
        state, merit = scored.codes[best], float(merits[best])
        single = search.singles(state, merit)


def improve(search: Explored, *, by_rows: bool = True) -> None:
    """Look for nearer answers among background rows, which change many groups, and by exchanging changes."""
    if by_rows and not search.budget.spent:
        seeds = min(SEEDS, max(FEWEST_SEEDS, MOST_CODES // len(search.problem.groups) ** 2))
        search.score(thinned(search, codes_of(search.problem, nearest_favourable_rows(search.problem)[:seeds])))
    exchange(search)


def thinned(search: Explored, states: Codes) -> Codes:
    """Return favourable candidates (m, G) without the changes that they can do without, as far as the budget goes.

    Each round puts back every change alone, and then those that could be spared together: the first, the first two and
    so on, in the order of the distance that each saves and the merit that it leaves.
    """
    problem, states = search.problem, states.copy()
    waiting = np.arange(len(states))
    for _ in range(MOST_ROUNDS):
        owner, undone = problem.undone_codes(states[waiting])
        if not len(owner) or search.budget.take(2 * len(owner)) < 2 * len(owner):
            break
        owner = waiting[owner]
        spared, merit = _lawful(search, undone)
        worth = (problem.distance(states[owner]) - problem.distance(undone)) * merit
        order = np.flatnonzero(spared)[np.lexsort((-worth[spared], owner[spared]))]
        waiting = np.unique(owner[order])
        if not len(waiting):
            break
        parts = [_one_more_each(problem, states[at], undone[order[owner[order] == at]]) for at in waiting.tolist()]
        owner, together = np.repeat(waiting, [len(part) for part in parts]), np.concatenate(parts)
        kept = np.flatnonzero(_lawful(search, together)[0])
        states[owner[kept]] = together[kept]  # the last of each, which puts back most
        waiting = np.unique(owner[kept])
    return search.cascade.repair(states)


def exchange(search: Explored) -> None:
    """Replace each change of the best members by another one, until none of them comes nearer by that."""
    done: set[bytes] = set()
    for _ in range(MOST_ROUNDS):
        favourable = search.population.codes[search.population.favourable]
        if not len(favourable) or search.budget.spent:
            return
        _, first = changed_sets(search.problem, favourable)
        best = favourable[first[: EXCHANGED + search.problem.count - 1]]
        waiting = [codes for codes in best if codes.tobytes() not in done][:1]  # the next may be better by then
        if not waiting:
            return
        done.add(waiting[0].tobytes())
        search.around(search.problem.undone_codes(np.array(waiting))[1])


def _one_more_each(problem: Problem, state: Codes, undone: Codes) -> Codes:
    """Return a state (G,) with the first change put back that `undone` (m, G) put back, the first two, and so on."""
    back = np.logical_or.accumulate(undone != state, axis=0)
    together: Codes = np.where(back, problem.own, state)
    lasting: Codes = together[(together != problem.own).any(axis=1)]
    return lasting


def _lawful(search: Explored, codes: Codes) -> tuple[Bools, Floats]:
    """Return whether candidates (m, G) are favourable and break no rule over several groups, and their merit.

    Those that the clock does not reach are not.
    """
    favourable, merit = np.zeros(len(codes), dtype=np.bool_), np.zeros(len(codes))
    for start in range(0, len(codes), RATED_AT_ONCE):
        if start and search.budget.late:
            break
        part = slice(start, start + RATED_AT_ONCE)
        favourable[part], merit[part] = search.rate(codes[part])
    for joint in search.cascade.joint_rules:
        favourable = favourable & joint.holds(codes)
    return favourable, merit


VERTICES = 3  # of a group's best trade-offs; most have one, where every change costs something however small it is
MOST_TRIED = 64  # prefixes of an order that are tried
LEAST_COST = 1e-12


class KnapsackItems(NamedTuple):
    """Single changes of one candidate: the group, its new action, what that brings and what it costs, (n,) each."""

    group: Codes
    code: Codes
    gain: Floats
    cost: Floats

    def take(self, some: Codes) -> KnapsackItems:
        """Return some of them, in this order."""
        return KnapsackItems(self.group[some], self.code[some], self.gain[some], self.cost[some])


def by_ratio(single: KnapsackItems) -> KnapsackItems:
    """Return the steps that bring most for what they cost, best first: the order of the fractional knapsack problem.

    Each group takes its steps along the hull of its trade-offs (Sinha and Zoltners 1979), so that a group's later
    steps, which replace its earlier ones, bring less for what they cost.
    """
    parts: list[KnapsackItems] = []
    gained = spent = np.zeros(int(single.group.max(initial=-1)) + 1)
    left = single
    for _ in range(VERTICES):
        gain, cost = left.gain - gained[left.group], left.cost - spent[left.group]
        better = np.flatnonzero(gain > 0)
        if not len(better):
            break
        left = left.take(better)
        steps = KnapsackItems(left.group, left.code, gain[better], np.maximum(cost[better], LEAST_COST))
        best = _first_of_groups(steps, np.lexsort((-steps.gain, -steps.gain / steps.cost)))
        parts.append(steps.take(best))
        gained, spent = gained.copy(), spent.copy()
        gained[left.group[best]], spent[left.group[best]] = left.gain[best], left.cost[best]
    if not parts:
        return single.take(np.empty(0, dtype=np.intp))
    groups, codes, gains, costs = zip(*parts, strict=True)
    steps = KnapsackItems(np.concatenate(groups), np.concatenate(codes), np.concatenate(gains), np.concatenate(costs))
    return steps.take(np.argsort(-steps.gain / steps.cost, kind="stable"))


def by_gain(single: KnapsackItems) -> KnapsackItems:
    """Return every group's step that brings most, best first: the order for the fewest changes."""
    single = single.take(np.flatnonzero(single.gain > 0))
    return single.take(_first_of_groups(single, np.lexsort((single.cost, -single.gain))))


def prefixes(steps: KnapsackItems, parent: Codes, need: float) -> Codes:
    """Return candidates (m, G): a parent (G,) with the first, the first two, ... steps taken until `need` is gained."""
    enough = int(np.searchsorted(steps.gain.cumsum(), need)) + 1
    steps = steps.take(np.arange(min(enough, len(steps.group))))
    codes = np.tile(parent, (len(steps.group), 1))
    for number, (group, code) in enumerate(zip(steps.group.tolist(), steps.code.tolist(), strict=True)):
        codes[number:, group] = code
    return codes[np.unique(np.linspace(0, len(codes) - 1, MOST_TRIED).astype(np.intp))] if len(codes) else codes


def price(steps: KnapsackItems, need: float) -> float:
    """Return what the last gain costs, of those that are needed: the multiplier of the relaxed problem."""
    if not len(steps.gain):
        return 1.0
    last = min(int(np.searchsorted(steps.gain.cumsum(), need)), len(steps.gain) - 1)
    return float(steps.cost[last] / steps.gain[last])


def _first_of_groups(single: KnapsackItems, order: Codes) -> Codes:
    """Return the positions of every group's first change in some order, in that order."""
    _, first = np.unique(single.group[order], return_index=True)
    found: Codes = order[np.sort(first)]
    return found
