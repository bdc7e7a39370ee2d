"""Linear models and ReLU networks as rows, with bounds on every neuron by intervals over what the row may have."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.milp.affine import Affine, difference, total
from mlflow_cf.milp.cells import CellBook
from mlflow_cf.milp.errors import NotLinearError
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Chosen
from mlflow_cf.structures.columns import Affine as Formula
from mlflow_cf.structures.parts import Choice, Dense, Number

MOST_WIDTH: Final = 1  # of a first layer whose inputs need no columns of their own


def embed_dense(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the sums of the last layer.

    Raises:
        NotLinearError: another activation than relu between layers.
    """
    check_activation(dense)
    sums = _first(book, dense)
    for weights, bias in zip(dense.weights, dense.biases, strict=True):
        hidden = [rectified(book.program, one) for one in sums]
        sums = [_weighted(hidden, weights[:, k]).plus(float(bias[k])) for k in range(len(bias))]
    return sums


def check_activation(dense: Dense) -> None:
    """Refuse another activation than relu between layers.

    Raises:
        NotLinearError: it says which.
    """
    if dense.weights and dense.activation != "relu":
        raise NotLinearError(f"a network with {dense.activation} between its layers")


def _first(book: CellBook, dense: Dense) -> list[Affine]:
    """Return the sums of the first layer."""
    parts: list[list[Affine]] = [[] for _ in dense.bias]
    for feature, entries in enumerate(dense.entries):
        for entry in entries:
            found = _number(book, feature, entry) if isinstance(entry, Number) else _choice(book, feature, entry)
            for part, one in zip(parts, found, strict=True):
                part.append(one)
    return [total(part).plus(float(bias)) for part, bias in zip(parts, dense.bias, strict=True)]


def _weighted(inputs: list[Affine], weights: Floats) -> Affine:
    return total([one.times(weight) for one, weight in zip(inputs, weights.tolist(), strict=True) if weight])


def _choice(book: CellBook, feature: int, entry: Choice) -> list[Affine]:
    """Return what a feature that is only told by its cells adds to every sum."""
    cells = book.of(feature, entry.lookup)
    return [cells.chosen(column) for column in entry.table[cells.cells].T]


def _number(book: CellBook, feature: int, entry: Number) -> list[Affine]:
    """Return what a number adds to every sum."""
    variable = book.variables.of(feature)
    if isinstance(variable, Chosen):
        codes = variable.values(feature)
        values = np.where(np.isnan(codes), entry.missing, _formula(entry.affine, codes))
        inner = Affine.chosen(variable.selectors, values)
    else:
        missing = book.variables.missing(feature)
        inner = _clipped(book.program, variable.value, entry.affine)
        if not missing.fixed:  # then the number is 0
            inner = total([inner, missing.times(entry.missing - float(_formula(entry.affine, np.zeros(1))[0]))])
    if len(entry.weights) > MOST_WIDTH and len(inner.columns) > 2:
        inner = _named(book.program, inner)
    return [inner.times(weight) for weight in entry.weights.tolist()]


def _named(program: Program, part: Affine) -> Affine:
    """Return an expression as one column of its own."""
    columns = program.add_columns(np.array([part.low]), np.array([part.high]))
    same = Affine(columns, np.ones(1), 0.0, part.low, part.high)
    program.require([difference(part, same)], 0.0, 0.0)
    return same


def _formula(formula: Formula, codes: Floats) -> Floats:
    return np.clip(formula.slope * codes + formula.offset, formula.low, formula.high)


def _clipped(program: Program, value: Affine, formula: Formula) -> Affine:
    """Return the formula of a real number; where it is cut off, binaries say on which side."""
    line = value.times(formula.slope).plus(formula.offset)
    if line.low < formula.low:  # the larger of the line and the end
        line = rectified(program, line.plus(-formula.low)).plus(formula.low)
    if line.high > formula.high:
        line = rectified(program, line.times(-1.0).plus(formula.high)).times(-1.0).plus(formula.high)
    return line


def rectified(program: Program, line: Affine) -> Affine:
    """Return the larger of a line and 0: one binary, and none where the bounds settle which it is."""
    if line.high <= 0:
        return Affine.of(0.0)
    if line.low >= 0:
        return line
    (column,) = program.add_columns(np.zeros(1), np.array([line.high])).tolist()
    (active,) = program.add_binaries(1).tolist()
    value = Affine(np.array([column]), np.ones(1), 0.0, 0.0, line.high)
    over = difference(value, line)
    off = Affine(np.array([active]), np.array([line.low]), -line.low, 0.0, -line.low)  # -low if not active
    on = Affine(np.array([active]), np.array([line.high]), 0.0, 0.0, line.high)
    program.require([over, difference(over, off), difference(value, on)], [0.0, -np.inf, -np.inf], [np.inf, 0.0, 0.0])
    return value
