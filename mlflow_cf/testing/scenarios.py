"""Which kinds of models, targets, constraints, values and distances are tried together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from itertools import combinations, product
from typing import Any, Final, get_args

from mlflow_cf.constraints import Values
from mlflow_cf.policy.distance import Scale
from mlflow_cf.testing.goals import GOALS
from mlflow_cf.testing.models import KINDS
from mlflow_cf.testing.worlds import DEMANDS

Choice = tuple[int, str]
Pair = tuple[int, str, int, str]


@dataclass(frozen=True)
class Scenario:
    """One problem of the suite, by the names of its parts.

    Attributes:
        kind: of model, among `KINDS`.
        goal: of target, among `GOALS`.
        demands: of constraints, among `DEMANDS`.
        values: which values may be proposed.
        scale: how the distance measures a change of a number.
    """

    kind: str
    goal: str
    demands: str
    values: Values
    scale: Scale = "range"

    def __str__(self) -> str:
        return "-".join(astuple(self))

    def choices(self) -> set[Choice]:
        """Return every choice of this scenario."""
        return set(enumerate(astuple(self)))

    def pairs(self) -> set[Pair]:
        """Return every two choices that this scenario brings together."""
        return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(astuple(self)), 2)}


def covering(covered: Callable[[Scenario], set[Any]]) -> tuple[Scenario, ...]:
    """Return few scenarios that cover all there is to cover, at least once; `covered` tells what one of them covers.

    Among those that cover as much, the one that brings most together for the first time is chosen, so that what is left
    over is spread over all kinds of models, targets and values.
    """
    scenarios = [Scenario(*choice) for choice in product(KINDS, GOALS, DEMANDS, get_args(Values), get_args(Scale))]
    scenarios = [scenario for scenario in scenarios if KINDS[scenario.kind].takes(GOALS[scenario.goal])]
    found = {scenario: covered(scenario) for scenario in scenarios}
    left = set().union(*found.values())
    apart = {scenario: scenario.pairs() for scenario in scenarios}
    chosen: list[Scenario] = []
    met: set[Pair] = set()
    while left:
        best = max(scenarios, key=lambda scenario: (len(found[scenario] & left), len(apart[scenario] - met)))
        chosen.append(best)
        left -= found[best]
        met |= apart[best]
    return tuple(chosen)


# Every two choices that can occur together do so. The full product is ten times larger and finds hardly more: most
# faults need one choice or two to show.
SCENARIOS: Final = covering(Scenario.pairs)
FEW: Final = covering(Scenario.choices)  # every choice alone, for a suite that runs at every change


def first_of_each_kind(scenarios: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Return the first scenario for every kind of model."""
    first: dict[str, Scenario] = {}
    for scenario in scenarios:
        first.setdefault(scenario.kind, scenario)
    return tuple(first.values())
