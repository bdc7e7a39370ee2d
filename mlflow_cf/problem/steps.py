"""Paths of several rows, each of which meets the constraints as a counterfactual of the row before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints import Domain
from mlflow_cf.constraints.expressions import Ref, differing
from mlflow_cf.constraints.rules import Bools, Rule, compare
from mlflow_cf.features import Floats
from mlflow_cf.problem.actions import Codes

LASTING: Final = ("==", "<=", ">=", "<", ">")  # transitive: holding for every step, they hold from first to last row
AT_ONCE: Final = 20_000  # steps that are checked together


@dataclass(frozen=True, eq=False)
class StepRules:
    """Which rows may follow which on a path.

    Most steps are decided cheaply: a rule that keeps or raises a feature is transitive, so that rows which x0 may not
    become need no check, and rules about one row alone are checked once per row.

    Attributes:
        rules: all rules.
        domains: the domains of all groups.
        accepts: rows (m, d) and rows (m, d) -> (m,) whether each of the first is a counterfactual of the one beside it.
    """

    rules: tuple[Rule, ...]
    domains: tuple[Domain, ...]
    accepts: Callable[[Floats, Floats], Bools]

    def reachable(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) which rows Z (m, d) a path from x0 (d,) may visit; it cannot visit the others."""
        kept: Bools = np.all(~np.isnan(Z) | np.isnan(x0), axis=1)
        for rule in (*self._alone, *(rule for rule, _ in self._lasting)):
            kept &= rule.holds(Z, x0)
        return kept

    def allowed(self, Z: Floats, start: Codes, end: Codes) -> Bools:
        """Return (e,) which steps from rows Z[start] to rows Z[end] may be taken; all are distinct and reachable."""
        kept = np.ones(len(start), dtype=np.bool_)
        for column in np.flatnonzero(np.isnan(Z).any(axis=0)).tolist():
            missing = np.isnan(Z[:, column])
            kept &= missing[start] | ~missing[end]
        for rule, column in self._lasting:
            atom = rule.then
            if atom.sign != "==":  # with ==, all reachable rows have the same value
                values = Z[:, column]
                kept &= compare(atom.sign, values[end], values[start], bare=True, unknown_from=atom.unknown_from)
        plain = self._contains(Z)
        if plain and not self._others:
            return kept
        left = np.flatnonzero(kept)
        for first in range(0, len(left), AT_ONCE):
            part = left[first : first + AT_ONCE]
            after, before = Z[end[part]], Z[start[part]]
            if plain:
                kept[part] = np.logical_and.reduce([rule.holds(after, before) for rule in self._others])
            else:
                kept[part] = self.accepts(after, before)
        return kept

    def _contains(self, Z: Floats) -> bool:
        """Whether all values of rows Z (m, d) may be proposed; values that all rows share are not checked."""
        if not len(Z):
            return True
        varies: Bools = np.any(differing(Z, Z[0]), axis=0)
        some = [list(domain.columns) for domain in self.domains]
        pairs = zip(self.domains, some, strict=True)
        return all(domain.contains(Z[:, columns]).all() for domain, columns in pairs if varies[columns].any())

    @cached_property
    def _alone(self) -> list[Rule]:
        """The rules about one row alone."""
        return [rule for rule in self.rules if not rule.columns("x")]

    @cached_property
    def _lasting(self) -> list[tuple[Rule, int]]:
        """The rules that compare a feature with what it was before the step, and its column."""
        found = [(rule, _lasting_column(rule)) for rule in self.rules]
        return [(rule, column) for rule, column in found if column is not None]

    @cached_property
    def _others(self) -> list[Rule]:
        """All other rules."""
        known = {id(rule) for rule in (*self._alone, *(rule for rule, _ in self._lasting))}
        return [rule for rule in self.rules if id(rule) not in known]


def _lasting_column(rule: Rule) -> int | None:
    """Return the column of a rule that holds for a path if it holds for each step; None for any other rule."""
    left, right, atom = rule.then.left, rule.then.right, rule.then
    if rule.when or atom.tolerance or atom.sign not in LASTING:
        return None
    if not (isinstance(left, Ref) and isinstance(right, Ref)) or left.column != right.column:
        return None
    return left.column if (left.side, right.side) == ("x_cf", "x") else None
