"""Causal equations over whole rows: a number changes by as much as a function of its parents does (CE-OCL 2.1).

``x_child = xhat_child + c(x_parents) - c(xhat_parents)``. The tolerance is half of the gap to the next value where the
child has only some admissible values. A child keeps its value while its parents keep theirs, and never changes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.causal.function import StructuralFunction
from mlflow_cf.constraints import Domain, Origin, Rule
from mlflow_cf.constraints.expressions import Computed, Const, differing
from mlflow_cf.constraints.rules import Atom, Source
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.words.statements import say

SLACK: Final = 1e-6  # of the range of a child that takes any number
ROUNDING: Final = 1e-9  # of the range, and of the number: a bound of the rounding error


@dataclass(frozen=True, eq=False)
class StructuralEquation:
    """One causal equation, as a computation over rows.

    A missing child stays missing, whatever its parents do. A missing parent counts as the median, or as the most
    frequent level.

    Attributes:
        function: what the child follows.
        admissible: (v,) the values that the child may be proposed, ascending; None: any number.
        width: the child's range.
    """

    function: StructuralFunction
    admissible: Floats | None
    width: float

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the child and of its parents."""
        return (self.function.child, *self.function.parents)

    def values(self, Z: Floats, x0: Floats) -> Floats:
        """Return (m,) by how much candidates Z (m, d) of x0 (d,), or of a row each, violate it; <= 0: not at all."""
        child, columns = self.function.child, list(self.columns)
        differs = differing(Z[:, columns], x0[..., columns])
        wanted = x0[..., child] + self.function.values(Z) - self.function.values(np.atleast_2d(x0))
        low, high = self.allowed_range(Z[:, child])
        missed = np.maximum(low - wanted, wanted - high) - ROUNDING * (self.width + np.abs(wanted))
        moved = np.where(np.isnan(missed), np.inf, missed)
        stays = ~differs[:, 0]
        alone = ~differs[:, 1:].any(axis=1) | np.isnan(x0[..., child])  # the child has nothing to follow
        return np.where(alone, np.where(stays, 0.0, np.inf), moved)

    def allowed_range(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the ends (m,), (m,) of what the equation may give for a child that has `values` (m,)."""
        if self.admissible is None:
            return values - SLACK * self.width, values + SLACK * self.width
        known, places = self._bordered, self.admissible
        below = values - known[np.searchsorted(places, values, side="left")]
        above = known[np.searchsorted(places, values, side="right") + 1] - values
        below, above = np.where(np.isinf(below), above, below), np.where(np.isinf(above), below, above)
        nothing = np.isinf(below)
        below[nothing] = above[nothing] = 0.0
        return values - below / 2, values + above / 2

    def put_child(self, row: Floats, x0: Floats) -> None:
        """Set the child of `row` (d,), in place, to the admissible value nearest to that of the equation."""
        child, parents, admissible = self.function.child, list(self.function.parents), self.admissible
        if not differing(row[None], x0)[0, parents].any() or np.isnan(x0[child]):
            row[child] = x0[child]
            return
        values = self.function.values(np.array([row, x0]))
        wanted = x0[child] + values[0] - values[1]
        if np.isfinite(wanted):
            every = np.array([wanted]) if admissible is None or not len(admissible) else admissible
            row[child] = every[np.abs(every - wanted).argmin()]

    @cached_property
    def widest(self) -> float:
        """The largest tolerance of any value of the child."""
        if self.admissible is None:
            return SLACK * self.width
        return float(np.diff(self.admissible).max(initial=0.0)) / 2

    @cached_property
    def _bordered(self) -> Floats:
        """The admissible values between infinite ones."""
        return np.concatenate([[-np.inf], self.admissible if self.admissible is not None else [], [np.inf]])


def causal_rules(
    functions: Sequence[StructuralFunction], space: FeatureSpace, domains: Sequence[Domain], source: Source
) -> tuple[Rule, ...]:
    """Return a rule for every causal equation of a policy or a request, in order; `domains` are those of all groups."""
    rules = []
    for number, function in enumerate(functions):
        (domain,) = (domain for domain in domains if function.child in domain.columns)
        values = domain.actions[:, domain.columns.index(function.child)]
        feature = space.features[function.child]
        equation = StructuralEquation(
            function,
            None if domain.interval is not None else np.unique(values[~np.isnan(values)]),
            feature.high - feature.low,
        )
        parents = tuple(space.names[parent] for parent in function.parents)
        then = Atom(Computed(equation), "<=", Const(0.0))
        text = say("must_follow", feature=feature.name, parents=parents)
        rules.append(Rule((), then, Origin(source, "causal", position=number), text, defines=function.child))
    return tuple(rules)


def followed(rules: Sequence[Rule], row: Floats, x0: Floats) -> Floats:
    """Return a row (d,) with all children of causal equations among `rules` set to their admissible values."""
    row = row.copy()
    equations = [rule.then.left.by for rule in rules if isinstance(rule.then.left, Computed)]
    for _ in equations:  # a child may be a parent of another one
        for equation in equations:
            if isinstance(equation, StructuralEquation):
                equation.put_child(row, x0)
    return row
