"""Fitted regressors, and networks that users write, as plain arrays: trees or layers over raw values of the parents.

Trees are `nodes`, `values`, `sets`, `roots` and `base`; layers are `numbers`, `shapes`, `weights`, `biases` and
`activation`. Both have `cut_sizes` and `cuts`: the ends of the cells (intervals) of parents that are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.causal.forms import usual_code
from mlflow_cf.constraints import CausalEquation
from mlflow_cf.constraints.model import Network
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import (
    Activation,
    Choice,
    ClippedLine,
    Column,
    Dense,
    Forest,
    IntervalColumn,
    Layers,
    LevelColumn,
    MonotoneStep,
    NotOpenedError,
    Number,
    NumberColumn,
    Structure,
    Subsets,
    TreeEnsemble,
)
from mlflow_cf.structures.capabilities import parts_of
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST, flags_of

Arrays = Mapping[str, NDArray[Any]]
LARGEST: Final = float(np.finfo(np.float64).max)  # stands for infinity: stored arrays are finite
ACTIVATIONS: Final[tuple[Activation, ...]] = ("identity", "relu", "logistic", "tanh")
TREES: Final = {"cut_sizes", "cuts", "nodes", "values", "sets", "roots", "base"}
LAYERS: Final = {"cut_sizes", "cuts", "numbers", "shapes", "weights", "biases", "activation"}
NO_CELLS: Final = -1  # in place of the number of cuts, for a parent without cells
END: Final = -1  # of a node that is a leaf, or compares


def arrays_of(structure: Structure, space: FeatureSpace) -> dict[str, NDArray[Any]]:
    """Return the arrays of an opened regressor over all features of `space`.

    Raises:
        NotOpenedError: it has several raw scores, a link function, or consists of other parts than trees or layers.
    """
    if structure.outputs != 1 or structure.link != "identity":
        raise NotOpenedError("a model of something else than one number")
    if isinstance(structure, TreeEnsemble):
        return _of_trees(structure)
    parts = parts_of(structure)
    if len(parts) != 1 or not isinstance(parts[0], Dense):
        raise NotOpenedError(f"a structure that is not made of layers ({structure.kind})")
    return _of_layers(parts[0], space)


def _of_trees(trees: TreeEnsemble) -> dict[str, NDArray[Any]]:
    nodes, features = trees.trees.nodes, trees.trees.features
    tested, inner = nodes.tests[:, FEATURE], nodes.tests[:, FEATURE] >= 0
    tabled = inner & (nodes.tests[:, TEST] >= 0)
    threshold = np.zeros(len(tested))
    for parent, lookup in enumerate(trees.lookups):
        mine = (tested == parent) & ~tabled
        threshold[mine] = np.clip(lookup.cuts[nodes.tests[mine, CUT]], -LARGEST, LARGEST)
    looked_up = set(tested[tabled].tolist())
    left = np.where(inner, nodes.tests[:, LEFT], 0)
    subset = np.where(tabled, nodes.tests[:, TEST], END)
    return {
        **_cuts([lookup.cuts[:-1] if at in looked_up else None for at, lookup in enumerate(trees.lookups)]),
        "nodes": np.column_stack([np.where(inner, tested, END), subset, left]).astype(np.int32),
        "values": np.column_stack([threshold, nodes.value[:, 0].astype(np.float64)]),
        "sets": flags_of(features.bits),
        "roots": nodes.roots.astype(np.int32),
        "base": trees.trees.base.astype(np.float64),
    }


def _of_layers(dense: Dense, space: FeatureSpace) -> dict[str, NDArray[Any]]:
    numbers: list[list[float]] = []
    of_numbers: list[Floats] = []
    of_cells: list[Floats] = []
    cuts: list[Floats | None] = []
    for parent, entries in enumerate(dense.entries):
        for entry in entries:
            if isinstance(entry, Number):
                a = entry.affine
                numbers.append([parent, a.slope, a.offset, max(a.low, -LARGEST), min(a.high, LARGEST)])
                of_numbers.append(entry.weights)
        choices = [entry for entry in entries if isinstance(entry, Choice)]
        if not choices:
            cuts.append(None)
            continue
        codes = np.unique(np.concatenate([one.lookup.cuts for one in choices]))  # cells that refine those of all
        cuts.append(codes[:-1].copy())
        codes[-1] = LARGEST if space.features[parent].numeric else float(len(codes) - 1)
        of_cells += list(np.sum([one.table[one.lookup.cells(codes)] for one in choices], axis=0))
    weights = [np.array([*of_numbers, *of_cells]).reshape(-1, len(dense.bias)), *dense.weights]
    biases = [dense.bias, *dense.biases]
    activation = dense.activation if dense.weights else "identity"
    return {**_cuts(cuts), **_packed(numbers, weights, biases, activation)}


def _packed(
    numbers: list[list[float]], weights: Sequence[Floats], biases: Sequence[Floats], activation: Activation
) -> dict[str, NDArray[Any]]:
    """Return layers as arrays: the numbers they take, their shapes, and all weights and biases concatenated."""
    return {
        "numbers": np.array(numbers, dtype=np.float64).reshape(-1, 5),
        "shapes": np.array([[*layer.shape] for layer in weights], dtype=np.int64),
        "weights": np.concatenate([layer.ravel() for layer in weights]).astype(np.float64),
        "biases": np.concatenate(biases).astype(np.float64),
        "activation": np.array(ACTIVATIONS.index(activation)),
    }


def _cuts(cuts: Sequence[Floats | None]) -> dict[str, NDArray[Any]]:
    """Return the finite cuts of all parents that have cells, concatenated, with their numbers per parent."""
    sizes = [NO_CELLS if some is None else len(some) for some in cuts]
    return {
        "cut_sizes": np.array(sizes, dtype=np.int64),
        "cuts": np.concatenate([np.empty(0), *(some for some in cuts if some is not None)]),
    }


def restored(arrays: Arrays, space: FeatureSpace, parents: Sequence[int]) -> Structure:
    """Return the structure of stored arrays, over all features of `space`; it reads `parents`.

    A missing parent counts as its usual value.

    Raises:
        KeyError, ValueError: the arrays are no function of so many parents.
    """
    names = set(arrays) - {"r2"}
    if names not in (TREES, LAYERS) or not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("other arrays than are stored")
    cells = _Cells.of(arrays, space, parents)
    return _layers(arrays, cells) if names == LAYERS else _trees(arrays, cells)


@dataclass(frozen=True, eq=False)
class _Cells:
    """The parents as encoded columns.

    Attributes:
        cuts: per parent, those between its cells; None: it has no cells, only its number counts.
        plain: per parent, its raw number.
    """

    space: FeatureSpace
    parents: Sequence[int]
    cuts: Sequence[Floats | None]
    plain: Sequence[NumberColumn]

    @classmethod
    def of(cls, arrays: Arrays, space: FeatureSpace, parents: Sequence[int]) -> _Cells:
        sizes, cuts = arrays["cut_sizes"], arrays["cuts"]
        if sizes.shape != (len(parents),) or sizes.dtype != np.int64 or (sizes < NO_CELLS).any():
            raise ValueError("arrays of other parents")
        if cuts.dtype != np.float64 or cuts.shape != (sizes.clip(0).sum(),):
            raise ValueError("arrays of other cells")
        parts = np.split(cuts, np.cumsum(sizes.clip(0))[:-1])
        for parent, size, part in zip(parents, sizes.tolist(), parts, strict=True):
            feature = space.features[parent]
            if (np.diff(part) <= 0).any() or (size >= 0 and not feature.numeric and size != len(feature.levels)):
                raise ValueError("arrays of other cells")
        known = [part if size >= 0 else None for part, size in zip(parts, sizes, strict=True)]
        return cls(space, parents, known, [NumberColumn(parent) for parent in parents])

    def number(self, place: int, formula: ClippedLine) -> NumberColumn:
        """Return the encoded column of a parent's number."""
        parent = self.parents[place]
        usual = usual_code(self.space.features[parent])
        return NumberColumn(parent, (MonotoneStep(partial(_formula, usual, formula), formula),))

    def by_cell(self, place: int, table: Floats) -> Column:
        """Return the encoded column with the number that `table` has for each cell of a parent."""
        parent, cuts = self.parents[place], self.cuts[place]
        if cuts is None:
            raise ValueError("a parent without cells")
        feature = self.space.features[parent]
        usual = usual_code(feature) if feature.numeric else np.floor(usual_code(feature))  # between two ranks the lower
        whole = np.append(table, table[np.searchsorted(cuts, usual)])
        if feature.numeric:
            return IntervalColumn(self.plain[place], cuts, whole)
        return LevelColumn(parent, whole)


def _formula(usual: float, formula: ClippedLine, codes: NDArray[Any]) -> Floats:
    known = np.where(np.isnan(codes), usual, codes)
    found: Floats = np.clip(formula.slope * known + formula.offset, formula.low, formula.high)
    return found


def _layers(arrays: Arrays, cells: _Cells) -> Structure:
    numbers = arrays["numbers"]
    if numbers.ndim != 2 or numbers.shape[1] != 5 or not np.isin(numbers[:, 0], range(len(cells.parents))).all():
        raise ValueError("arrays of other parents")
    columns: list[Column] = [cells.number(int(place), _affine(*line)) for place, *line in numbers.tolist()]
    for place, cuts in enumerate(cells.cuts):
        count = 0 if cuts is None else len(cuts) + 1
        columns += [cells.by_cell(place, row) for row in np.eye(count)]
    weights, biases = _unpacked(arrays, len(columns))
    return Layers.compile(columns, cells.space, weights, biases, ACTIVATIONS[int(arrays["activation"])], "identity")


def _affine(slope: float, offset: float, low: float, high: float) -> ClippedLine:
    return ClippedLine(slope, offset, -np.inf if low <= -LARGEST else low, np.inf if high >= LARGEST else high)


def _unpacked(arrays: Arrays, inputs: int) -> tuple[list[Floats], list[Floats]]:
    shapes, activation = arrays["shapes"], arrays["activation"]
    if shapes.ndim != 2 or shapes.shape[1] != 2 or shapes.dtype != np.int64 or not len(shapes) or (shapes < 0).any():
        raise ValueError("layers of other shapes")
    chain = [inputs, *shapes[:, 1].tolist()]
    if [*map(tuple, shapes.tolist())] != [*pairwise(chain)] or chain[-1] != 1:
        raise ValueError("layers of other inputs")
    sizes, widths = shapes.prod(axis=1), shapes[:, 1]
    fits = arrays["weights"].shape == (sizes.sum(),) and arrays["biases"].shape == (widths.sum(),)
    if not fits or activation.shape or activation not in range(len(ACTIVATIONS)):
        raise ValueError("layers of other inputs")
    weights = np.split(arrays["weights"], np.cumsum(sizes)[:-1])
    biases = np.split(arrays["biases"], np.cumsum(widths)[:-1])
    return [part.reshape(shape) for part, shape in zip(weights, shapes, strict=True)], biases


def _trees(arrays: Arrays, cells: _Cells) -> Structure:
    nodes, values, sets = arrays["nodes"], arrays["values"], arrays["sets"]
    _check_nodes(arrays, len(cells.parents))
    columns = [
        cells.number(place, ClippedLine()) if cuts is None else cells.by_cell(place, np.arange(len(cuts) + 1.0))
        for place, cuts in enumerate(cells.cuts)
    ]
    inner = nodes[:, 0] >= 0
    width = max((len(cuts) + 1 for cuts in cells.cuts if cuts is not None), default=0)
    if sets.shape[1] < width or any((nodes[inner & (nodes[:, 0] == place), 1] >= 0).any() != (cuts is not None)
                                    for place, cuts in enumerate(cells.cuts)):  # fmt: skip
        raise ValueError("nodes that look up other cells")
    left = np.zeros((len(sets), width + 1), dtype=np.bool_)
    left[:, :width] = sets[:, :width]
    forest = Forest(
        roots=arrays["roots"],
        outputs=np.zeros(len(arrays["roots"]), dtype=np.int32),
        column=np.ascontiguousarray(nodes[:, 0]),
        threshold=values[:, 0].copy(),
        missing_left=np.zeros(len(nodes), dtype=np.bool_),  # nothing is missing once it is coded
        left=nodes[:, 2].copy(),
        right=np.where(inner, nodes[:, 2] + 1, 0).astype(np.int32),
        value=values[:, 1:].copy(),
        rule="<= float64",
        base=arrays["base"],
        link="identity",
        subsets=Subsets(nodes[:, 1].copy(), left, -1.0) if width else None,
    )
    return TreeEnsemble.compile(forest, columns, cells.space)


def _check_nodes(arrays: Arrays, parents: int) -> None:
    """Raise a ValueError if nodes are no trees over so many parents: all but roots are children of an earlier node."""
    nodes, values, sets, roots = (arrays[name] for name in ("nodes", "values", "sets", "roots"))
    sound = nodes.ndim == 2 and nodes.shape[1] == 3 and values.shape == (len(nodes), 2) and sets.ndim == 2
    sound = sound and nodes.dtype == roots.dtype == np.int32 and sets.dtype == np.bool_
    sound = sound and values.dtype == arrays["base"].dtype == np.float64 and arrays["base"].shape == (1,)
    sound = sound and roots.ndim == 1 and len(roots) > 0
    if sound:
        inner = np.flatnonzero(nodes[:, 0] >= 0)
        left = nodes[inner, 2]
        below = np.sort(np.concatenate([roots, left, left + 1]))
        sound = np.array_equal(below, np.arange(len(nodes))) and bool((left > inner).all())
        sound = sound and bool((nodes[:, 0] < parents).all() and (nodes[:, 1] < len(sets)).all())
    if not sound:
        raise ValueError("nodes that are no tree")


def arrays_of_network(equation: CausalEquation, network: Network, space: FeatureSpace) -> dict[str, NDArray[Any]]:
    """Return the arrays, as in `opened`, of a network that fits its parents."""
    weights = [np.array(layer, dtype=np.float64) for layer in network.weights]
    inputs = [(entry,) if isinstance(entry, str) else entry for entry in network.inputs or equation.parents]
    numbers: list[list[float]] = []
    of_numbers: list[Floats] = []
    of_cells: list[Floats] = []
    cuts: list[Floats | None] = []
    for place, name in enumerate(equation.parents):
        feature = space[name]
        mine = [(level, row) for (parent, *level), row in zip(inputs, weights[0], strict=True) if parent == name]
        if feature.numeric:
            numbers += [[place, 1.0, 0.0, -LARGEST, LARGEST]] * len(mine)
            of_numbers += [row for _, row in mine]
            cuts.append(None)
            continue
        table, known = np.zeros((len(feature.levels) + 1, weights[0].shape[1])), [*map(str, feature.levels)]
        for level, row in mine:
            table[known.index(level[0] if level else str(True))] += row
        of_cells += list(table)
        cuts.append(np.arange(float(len(known))))
    layers = [np.array([*of_numbers, *of_cells]), *weights[1:]]
    biases = [np.array(layer, dtype=np.float64) for layer in network.biases]
    return {**_cuts(cuts), **_packed(numbers, layers, biases, "relu" if len(layers) > 1 else "identity")}
