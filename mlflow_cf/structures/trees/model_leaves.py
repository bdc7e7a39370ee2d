"""The leaves of several models as bits; see the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.leaf_masks import BITS, SLOTS, LeafMasks, LeafPaths, note_leaves_accepted
from mlflow_cf.structures.kernels.trees import FEATURE, Trees
from mlflow_cf.structures.model_leaves import ModelLeaves
from mlflow_cf.structures.structure import Flags
from mlflow_cf.structures.trees.leaves import tree_of

Numbers = NDArray[np.intp]
MOST_WORDS: Final = 2**23  # 64 MB, 190 with those of ranges; 30 models of XGBoost with 100 trees take 11 so on Adult


def model_leaves(trees: Trees, weights: Floats) -> ModelLeaves | None:
    """Return the leaves of models, each of which decides by weighted sums of its raw scores.

    Args:
        trees: of all models; each adds to one raw score.
        weights: (f, k) of the raw scores of a model; each sum of a model stands for a model of its own.

    Returns:
        None where they take more than `MOST_WORDS`, or where leaves of several models have a value for each.
    """
    width, nodes = weights.shape[1], trees.nodes
    models = len(trees.base) // width
    shared = bool((nodes.outputs < 0).any())
    if shared and models > 1:
        return None
    model_of, score = np.maximum(nodes.outputs, 0) // width, np.maximum(nodes.outputs, 0) % width
    tree = tree_of(trees.nodes)
    parts, total = list[_Model](), 0
    for model, some in product(range(models), weights):
        weight = np.ones(len(nodes.roots)) if shared else some[score]
        value = (nodes.value @ some if shared else nodes.value[:, 0] * weight[tree]).astype(np.float64)
        parts.append(_model(trees, tree, np.flatnonzero((model_of == model) & (weight != 0)), value))
        total += sum(map(len, parts[-1].cells)) * len(parts[-1].words)
        if total > MOST_WORDS:
            return None
    masks = _masks(trees, parts, (trees.base.reshape(models, width) @ weights.T).ravel())
    return ModelLeaves(masks, np.stack([part.kind for part in parts]), trees.features.start)


def _masks(trees: Trees, parts: Sequence[_Model], base: Floats) -> LeafMasks:
    """Return the leaves of some models, to whose sums `base` (models,) is added."""
    first = np.append(0, np.cumsum([len(part.words) for part in parts]))
    kinds = np.array([[len(some) for some in part.cells] for part in parts], dtype=np.int64)
    sizes = kinds * np.diff(first)[:, None]
    where = (sizes.ravel().cumsum() - sizes.ravel()).reshape(kinds.shape)
    exact = np.concatenate([part.value for part in parts])
    value = _rounded_up(exact)
    masks = LeafMasks(
        first=first,
        tree=np.concatenate([part.next + begin for part, begin in zip(parts, first.tolist(), strict=False)]),
        several=np.array([len(part.roots) < len(part.words) for part in parts]),
        value=value,
        base=base,
        off=np.add.reduceat(np.maximum.reduceat(value - exact, BITS * np.arange(first[-1])), first[:-1]),
        kinds=kinds,
        where=where,
        accepts=np.concatenate([np.tile(part.words, sum(map(len, part.cells))) for part in parts]),
    )
    way = np.empty((trees.deepest + 2, 2), dtype=np.int64)
    for model, part in enumerate(parts):
        cell = np.zeros((kinds.shape[1], int(kinds[model].max(initial=1))), dtype=np.int64)
        for feature, some in enumerate(part.cells):
            cell[feature, : len(some)] = some
        paths = LeafPaths(part.roots, part.bit, cell, kinds[model], where[model], len(part.words), way)
        note_leaves_accepted(trees, paths, masks.accepts)
    return masks


class _Model(NamedTuple):
    """One of the models.

    Attributes:
        roots: (trees,) of its trees; bit: (nodes,) the bit of each leaf.
        words: (words,) the bits that leaves have; next: (words,) where the words of the next tree start.
        value: (64 words,) as in `LeafMasks`; kind: (cells,) as in `ModelLeaves`; cells: per feature, one of every kind.
    """

    roots: Numbers
    bit: Numbers
    words: NDArray[np.uint64]
    next: Numbers
    value: Floats
    kind: NDArray[np.int32]
    cells: list[Numbers]


def _model(trees: Trees, tree: Numbers, mine: Numbers, values: Floats) -> _Model:
    """Return a model of the trees `mine`; `tree` (nodes,) which one each node is of, `values` (nodes,) of leaves."""
    nodes, place = trees.nodes, np.full(len(trees.nodes.roots), -1)
    place[mine] = np.arange(len(mine))
    of = place[tree]
    leaves = np.flatnonzero((nodes.tests[:, FEATURE] < 0) & (of >= 0))
    leaves = leaves[np.lexsort((-values[leaves], of[leaves]))]
    counts = np.bincount(of[leaves], minlength=len(mine))
    several = -(-counts // BITS)  # words
    stop = several.cumsum()
    rank = np.arange(len(leaves)) - np.repeat(counts.cumsum() - counts, counts)
    bits = BITS * np.repeat(stop - several, counts) + rank
    bit = np.zeros(len(nodes.tests), dtype=np.intp)
    bit[leaves] = bits
    value, words = np.zeros(BITS * int(several.sum())), np.zeros(int(several.sum()), dtype=np.uint64)
    value[bits // BITS * BITS + SLOTS[bits % BITS]] = values[leaves]
    np.bitwise_or.at(words, bits // BITS, np.uint64(1) << (bits % BITS).astype(np.uint64))
    kind, cells = _kinds(trees, (nodes.tests[:, FEATURE] >= 0) & (of >= 0))
    return _Model(
        nodes.roots[mine].astype(np.intp),
        bit,
        words,
        np.repeat(stop, several),
        value,
        kind,
        cells,
    )


def _kinds(trees: Trees, inside: Flags) -> tuple[NDArray[np.int32], list[Numbers]]:
    """Return which cells (cells,) of a feature the tests of some nodes tell apart, and a cell of every kind."""
    walk, start = trees.walk, trees.features.start.tolist()
    kind, cells = np.zeros(start[-1], dtype=np.int32), list[Numbers]()
    tested = trees.nodes.tests[:, FEATURE]
    for feature, begin in enumerate(start[:-1]):
        size, wide = start[feature + 1] - begin, int(walk.start[feature + 1] - walk.start[feature])
        place = int(walk.offset[feature])
        comparands = walk.comparands[place : place + size * wide].reshape(size, wide)
        keys = np.unique(walk.key[inside & (tested == feature)])
        passes = comparands[:, (keys >> 32) - walk.start[feature]] > (keys & 0xFFFFFFFF)
        packed = np.packbits(passes, axis=1) if len(keys) else np.zeros((size, 1), dtype=np.uint8)
        rows = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").ravel()
        _, cell, kinds = np.unique(rows, return_index=True, return_inverse=True)
        order = np.argsort(cell)  # those of numbers ascend
        kind[begin : begin + size] = np.argsort(order)[kinds]
        cells.append(cell[order])
    return kind, cells


def _rounded_up(values: Floats) -> NDArray[np.float32]:
    """Return numbers that are no smaller, in half of the memory: those of a model fit into the nearest cache."""
    rounded = values.astype(np.float32)
    return np.where(rounded < values, np.nextafter(rounded, np.float32(np.inf)), rounded)
