"""Which changes go together: what each brings alone, taken as if gains added up (the relaxed knapsack problem)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes

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
