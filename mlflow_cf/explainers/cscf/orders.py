"""Steps of plans in a cheaper order: what helps comes before what it helps."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.explainers.cscf.evaluation import Evaluated, Evaluator
from mlflow_cf.explainers.cscf.genes import Ordered
from mlflow_cf.features import Floats
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.kernels import Ints
from mlflow_cf.search.population import row_keys

MOST: Final = 256  # beginnings of a plan that are followed, the cheapest ones: all of up to eight steps
MOST_WALKED: Final = 2**20  # beginnings in all: about a second; plans of eight steps have 16,000 each, of four 250


def reordered(evaluator: Evaluator, plans: Evaluated) -> Evaluated:
    """Return those of the plans that another order of their steps makes cheaper, in their cheapest order.

    Actions keep their values. The genetic algorithm tries orders by chance, and refinement moves values alone: a plan
    that gains before it studies may stay, although study would make the gain cheaper.
    """
    parts, walked = [plans.take(np.arange(0))], 0
    if not order_matters(evaluator.possible.action_model):
        return parts[0]
    lengths = plans.lengths
    for steps in np.unique(lengths[lengths > 1]).tolist():
        some, begun = np.flatnonzero(lengths == steps), min(MOST, 2**steps) * steps
        size = max(1, evaluator.at_once // begun)
        for start in range(0, len(some), size):
            walked += begun * steps * min(size, len(some) - start)
            if evaluator.cut or walked > MOST_WALKED:
                return Evaluated.together(parts)
            parts.append(_cheaper(evaluator, plans.take(some[start : start + size])))
    return Evaluated.together(parts)


def order_matters(action_model: ActionModel) -> bool:
    """Whether what a step costs, does or needs may depend on the steps before it."""
    return bool(action_model.relations.edges) or any(
        action.effects or action.effort is not None or action.before or action.after for action in action_model.actions
    )


def _cheaper(evaluator: Evaluator, plans: Evaluated) -> Evaluated:
    """Return those of plans with equally many steps that become cheaper; none once the budget has ended."""
    steps = int(plans.lengths[0])
    owner, orders = np.arange(len(plans)), np.empty((len(plans), 0), dtype=np.intp)
    for _ in range(steps):
        if evaluator.cut:
            return plans.take(np.arange(0))
        owner, orders = _continued(evaluator, plans.sequences, owner, orders)
    tried = evaluator.evaluate(_in_order(plans.sequences, owner, orders))
    first = np.lexsort((tried.worth, owner))
    first = first[np.unique(owner[first], return_index=True)[1]]
    return tried.take(first[tried.worth[first] < plans.worth[owner[first]]])


def _continued(evaluator: Evaluator, sequences: Ordered, owner: Ints, orders: Ints) -> tuple[Ints, Ints]:
    """Return beginnings of plans with one step more.

    Those of a plan that did the same steps and are in the same state go on alike: the cheapest of them is followed.

    Args:
        evaluator: of the row; sequences: the steps of the plans.
        owner: (m,) whose each beginning is; orders: (m, t) the places of its steps.
    """
    steps = int((sequences.actions[0] >= 0).sum())
    owner, place = np.repeat(owner, steps), np.tile(np.arange(steps), len(owner))
    orders = np.column_stack([np.repeat(orders, steps, axis=0), place])
    fresh = (orders[:, :-1] != place[:, None]).all(axis=1)
    owner, orders = owner[fresh], orders[fresh]
    begun = _in_order(sequences, owner, orders)
    ends = evaluator.walker.walk(begun.actions, begun.values)
    done = np.flatnonzero(ends.valid)
    owner, orders, cost = owner[done], orders[done], ends.cost[done]
    used = np.zeros((len(done), steps))
    np.put_along_axis(used, orders, 1.0, axis=1)
    kept = _cheapest(row_keys(np.column_stack([owner, used, ends.states[done] + 0.0])), cost)
    owner, orders, cost = owner[kept], orders[kept], cost[kept]
    order = np.lexsort((cost, owner))
    rank = np.arange(len(order)) - np.searchsorted(owner[order], owner[order])
    few = np.sort(order[rank < MOST])
    return owner[few], orders[few]


def _cheapest(keys: np.ndarray[tuple[int], np.dtype[np.uint64]], cost: Floats) -> Ints:
    """Return the position of the cheapest of every key."""
    order = np.lexsort((cost, keys))
    return np.sort(order[np.unique(keys[order], return_index=True)[1]])


def _in_order(sequences: Ordered, owner: Ints, orders: Ints) -> Ordered:
    """Return (m) sequences that do some steps of others, at the places `orders` (m, t), and then nothing."""
    shape = (len(owner), sequences.actions.shape[1])
    actions, values = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    actions[:, : orders.shape[1]] = np.take_along_axis(sequences.actions[owner], orders, axis=1)
    values[:, : orders.shape[1]] = np.take_along_axis(sequences.values[owner], orders, axis=1)
    return Ordered(actions, values)
