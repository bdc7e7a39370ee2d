"""Which candidates of a row some of many models refuses, by the trees whose paths the changed features may leave.

Models are asked one after the other, the one that refused last first: most candidates cost the walks of half of the
trees of one model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.own_paths import OwnPaths, bit_of, note_own_paths
from mlflow_cf.structures.kernels.trees import Trees, find_comparands

Array = NDArray[Any]


class RefusalRoom(NamedTuple):
    """What is known of a row and its models, and workspace.

    Attributes:
        paths: of the row.
        row: (1, d) its cells; X: (columns,) comparands.
        score: (models,) of the row; weights: (k,) of the raw scores; may: from which score on a model may accept.
        member: (trees,) the trees, model after model; start: (models + 1,) where those of each start.
        order: (models,) in which models are asked; refusals: (models,) how many candidates each has refused.
    """

    paths: OwnPaths
    row: Array
    X: Array
    score: Array
    weights: Array
    may: Array
    member: Array
    start: Array
    order: Array
    refusals: Array


@inner
def _value(node: Any, tree: Any, trees: Trees, weights: Array) -> Any:
    """Return the weighted value of a leaf of a tree that adds to one raw score."""
    return weights[max(trees.nodes.outputs[tree], 0)] * np.float64(trees.nodes.value[node, 0])


@kernel
def begin_refusals(trees: Trees, room: RefusalRoom) -> None:
    """Write the paths and scores of the row."""
    find_comparands(room.row, trees.walk, room.X)
    note_own_paths(room.X, trees, room.paths)
    many = room.score.size
    for model in range(many):
        room.score[model] = 0.0
    for place in range(trees.base.size):
        room.score[place * many // trees.base.size] += room.weights[place] * trees.base[place]
    for tree in range(trees.nodes.roots.size):
        room.score[room.paths.model[tree]] += _value(room.paths.leaf[tree], tree, trees, room.weights)


@inner
def _score(model: Any, bits: Any, trees: Trees, room: RefusalRoom) -> Any:
    """Return the score of one model for the present comparands; `bits` are those of the features that differ."""
    (key, left), paths, X, total = (trees.walk.key, trees.walk.left), room.paths, room.X, room.score[model]
    for at in range(room.start[model], room.start[model + 1]):
        tree = room.member[at]
        if paths.bits[tree] & bits == np.uint64(0):
            continue
        own, node, before = np.int64(paths.leaf[tree]), np.int64(trees.nodes.roots[tree]), np.int64(-1)
        while node != before:  # a leaf is its own left child
            before = node
            node = np.int64(left[node]) + np.int64(X[key[node] >> 32] > (key[node] & 0xFFFFFFFF))
        if node != own:
            total += _value(node, tree, trees, room.weights) - _value(own, tree, trees, room.weights)
    return total


@inner
def _refused(bits: Any, trees: Trees, room: RefusalRoom) -> Any:
    """Whether a model refuses the present comparands; it is asked first from now on."""
    order = room.order
    for place in range(order.size):
        model = order[place]
        if _score(model, bits, trees, room) < room.may[0]:
            room.refusals[model] += 1
            for before in range(place, 0, -1):
                order[before] = order[before - 1]
            order[0] = model
            return True
    return False


@kernel
def find_refused(cells: Array, trees: Trees, room: RefusalRoom, most: int, refused: Array) -> int:
    """Write which candidates of cells (m, d) a model refuses until so many are not; return how many were looked at."""
    walk, left, row = trees.walk, most, 0
    while row < len(cells) and left > 0:
        bits = np.uint64(0)
        for feature in range(cells.shape[1]):
            cell = cells[row, feature]
            if cell == room.row[0, feature]:
                continue
            bits |= bit_of(feature)
            first, wide = walk.start[feature], walk.start[feature + 1] - walk.start[feature]
            place = walk.offset[feature] + cell * wide
            for part in range(wide):
                room.X[first + part] = walk.comparands[place + part]
        refused[row] = _refused(bits, trees, room)
        for feature in range(cells.shape[1]):
            if cells[row, feature] != room.row[0, feature]:
                first, wide = walk.start[feature], walk.start[feature + 1] - walk.start[feature]
                place = walk.offset[feature] + room.row[0, feature] * wide
                for part in range(wide):
                    room.X[first + part] = walk.comparands[place + part]
        left, row = left - (0 if refused[row] else 1), row + 1
    return row
