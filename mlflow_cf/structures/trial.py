"""Warm-up of the kernels for pairs of changes, so that no later row waits until they are compiled."""

from __future__ import annotations

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.capabilities import SupportsPairs
from mlflow_cf.structures.kernels.blocks import SingleEffects
from mlflow_cf.structures.pairs import no_threshold
from mlflow_cf.structures.structure import Structure

CELLS = 2**16  # floats of a table that is worth a warm-up


def try_pairs(structure: Structure, Z: Floats) -> None:
    """Bound and list pairs of changes of the first of coded rows (m, d) to values of the others; d >= 2."""
    tokens = [structure.encode(column, codes) for column, codes in enumerate(Z.T)]
    if not isinstance(structure, SupportsPairs):
        return
    pairs = structure.pairs([token[:1] for token in tokens])
    zeros, outputs = np.zeros(Z.size), structure.outputs
    tables = pairs.tables(tokens, np.array([0]), np.array([1]), CELLS)
    if tables is not None:
        alone, whole = (
            SingleEffects(np.zeros((Z.size, outputs)), np.zeros(outputs), zeros, zeros, 0.0, 1.0),
            no_threshold(outputs),
        )
        tables.near(alone, whole, tables.blocks(alone, whole).at)
