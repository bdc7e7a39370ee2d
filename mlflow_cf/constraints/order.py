"""The order in which groups are repaired: a group that the rules of others depend on comes first (GeCo section 3.2)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from mlflow_cf.constraints.rules import Rule
from mlflow_cf.errors import InputError


def repair_order(
    rules: Sequence[Rule], groups: Sequence[tuple[int, ...]], names: Sequence[str], path: str = "constraints"
) -> tuple[int, ...]:
    """Return the groups in topological order of their rules; ties in the order of features.

    A rule that defines a feature and mentions another group puts that group first. Rejection rules order nothing.

    Raises:
        InputError: groups that depend on each other in a circle, which is printed.
    """
    owner = {column: number for number, columns in enumerate(groups) for column in columns}
    graph = TopologicalSorter[int](dict.fromkeys(range(len(groups)), ()))
    for rule in rules:
        if rule.defines is not None:
            defined = owner[rule.defines]
            before = {owner[column] for column in rule.columns("x_cf")} - {defined}
            graph.add(defined, *before)
    try:
        graph.prepare()
    except CycleError as error:
        circle = " -> ".join("+".join(names[column] for column in groups[number]) for number in reversed(error.args[1]))
        fix = "rewrite one of them so that it defines nothing, e.g. IF ... THEN 1 = 2"
        raise InputError(f"{path}.rules", f"rules depend on each other: {circle}", fix) from None
    order: list[int] = []
    ready = list(graph.get_ready())
    while ready:
        heapq.heapify(ready)
        number = heapq.heappop(ready)
        order.append(number)
        graph.done(number)
        ready.extend(graph.get_ready())
    return tuple(order)
