"""Structures as rows of a program, whatever they are made of."""

from __future__ import annotations

from typing import Final

from mlflow_cf.milp.affine import Affine
from mlflow_cf.milp.cells import CellBook
from mlflow_cf.milp.embed_dense import check_activation, embed_dense
from mlflow_cf.milp.embed_leaves import embed_leaves
from mlflow_cf.milp.errors import NotLinearError
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.variables import Variables
from mlflow_cf.structures.parts import Leaves
from mlflow_cf.structures.structure import Structure

NO_FORMULA: Final = "a number that is transformed in a way that is no formula"


def embed(program: Program, variables: Variables, structure: Structure) -> list[Affine]:
    """Return the sums of a structure, in order.

    Args:
        program, variables: to which it is added.
        structure: over all features.

    Raises:
        NotLinearError: rows cannot express it.
    """
    parts = structure.parts()
    if parts is None:
        raise NotLinearError(NO_FORMULA)
    book = CellBook(program, variables)
    sums: list[Affine] = []
    for part in parts:
        sums += embed_leaves(book, part) if isinstance(part, Leaves) else embed_dense(book, part)
    return sums


def check_linear(structure: Structure) -> None:
    """Refuse a structure that rows cannot express.

    Raises:
        NotLinearError: it says why.
    """
    parts = structure.parts()
    if parts is None:
        raise NotLinearError(NO_FORMULA)
    for part in parts:
        if not isinstance(part, Leaves):
            check_activation(part)
