"""Rules that are checked together: most of them compare one column with another or with a constant, whatever holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import Const, Ref
from mlflow_cf.constraints.rules import Atom, Bools, Comparison, Rule, compare
from mlflow_cf.features import Floats

OF_NO_ROW = -1


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons with one sign, of k columns of the counterfactual.

    Attributes:
        sign: the sign; left: (k,) the columns.
        right: (k,) the columns of the query row beside them, or -1: then the `constants` (k,) are.
        unknown_from, tolerance: (k,) as in `Atom`.
    """

    sign: Comparison
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    constants: Floats
    unknown_from: Floats
    tolerance: Floats

    @classmethod
    def of(cls, atoms: Sequence[Atom]) -> Comparisons:
        """Return simple atoms with one sign together."""
        right = [atom.right.column if isinstance(atom.right, Ref) else OF_NO_ROW for atom in atoms]
        return cls(
            atoms[0].sign,
            np.array([atom.left.column for atom in atoms if isinstance(atom.left, Ref)], dtype=np.intp),
            np.array(right, dtype=np.intp),
            np.array([atom.right.value if isinstance(atom.right, Const) else np.nan for atom in atoms]),
            np.array([atom.unknown_from for atom in atoms]),
            np.array([atom.tolerance for atom in atoms]),
        )

    def holds(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) whether all hold for candidates Z (m, d) of the query row x0 (d,), or of a row each (m, d)."""
        left, right = Z[:, self.left], np.where(self.right == OF_NO_ROW, self.constants, x0[..., self.right])
        held = compare(self.sign, left, right, bare=True, unknown_from=self.unknown_from)
        if self.sign == "==":
            np.logical_or(held, np.abs(left - right) <= self.tolerance, out=held)
        every: Bools = np.all(held, axis=1)
        return every


def together(rules: Iterable[Rule]) -> tuple[Comparisons | Rule, ...]:
    """Return what holds where all of some rules hold: simple ones together, and the others."""
    simple: dict[Comparison, list[Atom]] = {}
    others: list[Rule] = []
    for rule in rules:
        if not rule.when and is_simple(rule.then):
            simple.setdefault(rule.then.sign, []).append(rule.then)
        else:
            others.append(rule)
    return (*map(Comparisons.of, simple.values()), *others)


def is_simple(atom: Atom) -> bool:
    """Whether an atom compares a column of the counterfactual with one of the query row, or with a constant."""
    left, right = atom.left, atom.right
    known = isinstance(right, Const) or (isinstance(right, Ref) and right.side == "x")
    return isinstance(left, Ref) and left.side == "x_cf" and known and atom.sign != "in"
