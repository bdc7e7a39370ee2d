"""Cuts: constraints that exclude earlier answers, or answers that broke a rule which is not linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Affine, Program, difference, total
from mlflow_cf.milp.variables import Chosen, Variables
from mlflow_cf.policy.limits import ranges
from mlflow_cf.problem.binding import same

APART: Final = 0.05  # of a real number's range: by how much it is clearly another one
LEAST: Final = 2e-6  # of the width of a real number's box: the solver meets rows up to half of it


@dataclass(frozen=True, eq=False)
class OtherChanges:
    """Excludes answers that change all groups which an earlier answer changed.

    Supersets are excluded, too: most only add redundant changes. A plain no-good cut would not do, because a real
    number's switch may be on without a change.
    """

    groups: tuple[int, ...]

    def add(self, program: Program, variables: Variables) -> None:
        """Add its constraint."""
        program.require([variables.changes(self.groups)], -np.inf, len(self.groups) - 1.0)


@dataclass(frozen=True, eq=False)
class OtherValues:
    """Excludes answers that have about the values of an earlier one in all of some groups.

    Attributes:
        row: (d,) the earlier answer; groups: those of which one or more must differ from it.
        least: the share of its range by which a number must differ; None: any other action will do.
        unless: groups; an answer that leaves one of them unchanged is not excluded.
    """

    row: Floats
    groups: tuple[int, ...]
    least: float | None = None
    unless: tuple[int, ...] = ()

    def add(self, program: Program, variables: Variables) -> None:
        """Add its constraints."""
        differs = [self._differs(program, variables, number) for number in self.groups]
        stays = [variables.changes([number]).times(-1.0).plus(1.0) for number in self.unless]
        program.require([total([*differs, *stays])], 1.0, np.inf)

    def _differs(self, program: Program, variables: Variables, number: int) -> Affine:
        """Return an expression that is 1 only if a group differs from the earlier answer."""
        variable, problem = variables.groups[number], variables.problem
        columns = list(problem.columns[number])
        least = (self.least or 0.0) * ranges([problem.space.features[column] for column in columns])
        if isinstance(variable, Chosen):
            own = self.row[columns]
            with np.errstate(invalid="ignore"):  # a missing value is far from all numbers
                alike: Bools = same(variable.actions, own) | (np.abs(variable.actions - own) < least)
            return variable.where(~np.logical_and.reduce(alike, axis=1))
        value = self.row[variable.column]
        if np.isnan(value):
            return variable.switch
        sides = [program.add_binary(), program.add_binary()]  # above and below
        gap = variable.shift.plus(-(value - variable.origin) / variable.step)  # in shares of the box
        feature = problem.space.features[variable.column]
        share = APART * ((feature.high - feature.low) or variable.step) / variable.step
        for side, apart in zip(sides, (gap, gap.times(-1.0)), strict=True):
            far = min(share, max(apart.high, 0.0)) or share
            if self.least is not None:
                far = float(least[0]) / variable.step + LEAST
            program.require([difference(apart, side.times(far - apart.low))], apart.low, np.inf)
        program.require([total(sides)], -np.inf, 1.0)
        return total(sides)


Cut = OtherChanges | OtherValues
