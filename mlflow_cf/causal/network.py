"""Networks that users write, converted to the arrays in which fitted functions are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.causal.opened import LARGEST, NO_CELLS, packed
from mlflow_cf.constraints import CausalEquation
from mlflow_cf.constraints.equations import Network
from mlflow_cf.features import Feature, FeatureSpace, Floats


def arrays_of_network(equation: CausalEquation, network: Network, space: FeatureSpace) -> dict[str, NDArray[Any]]:
    """Return the arrays, as in `opened`, of a network that fits its parents."""
    weights = [np.array(layer, dtype=np.float64) for layer in network.weights]
    inputs = equation.parents if network.inputs is None else network.inputs
    numbers: list[list[float]] = []
    of_numbers: list[Floats] = []
    of_cells: list[Floats] = []
    sizes: list[int] = []
    for place, name in enumerate(equation.parents):
        feature = space[name]
        mine = [(entry, row) for entry, row in zip(inputs, weights[0], strict=True) if _parent(entry) == name]
        if feature.numeric:
            numbers += [[place, 1.0, 0.0, -LARGEST, LARGEST]] * len(mine)
            of_numbers += [row for _, row in mine]
            sizes.append(NO_CELLS)
            continue
        table = np.zeros((len(feature.levels) + 1, weights[0].shape[1]))
        for entry, row in mine:
            table[_code(feature, entry)] += row
        of_cells += list(table)
        sizes.append(len(feature.levels))
    first = np.array([*of_numbers, *of_cells])
    levels = [np.arange(float(size)) for size in sizes if size >= 0]
    biases = [np.array(layer, dtype=np.float64) for layer in network.biases]
    return {
        "cut_sizes": np.array(sizes, dtype=np.int64),
        "cuts": np.concatenate([np.empty(0), *levels]),
        "numbers": np.array(numbers, dtype=np.float64).reshape(-1, 5),
        **packed([first, *weights[1:]], biases, "relu" if len(weights) > 1 else "identity"),
    }


def _parent(entry: str | tuple[str, str]) -> str:
    return entry if isinstance(entry, str) else entry[0]


def _code(feature: Feature, entry: str | tuple[str, str]) -> int:
    """Return the code of the level for which an input is 1."""
    wanted = str(True) if isinstance(entry, str) else entry[1]
    return [str(level) for level in feature.levels].index(wanted)
