"""Which sets of three features cannot be answers, because one of several models refuses all changes of them.

Models are asked one after the other, the one that refused last first, so that most sets cost a fraction of what it
takes to list what all models may accept (`triples`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.own_paths import note_own_paths
from mlflow_cf.structures.kernels.trees import Trees
from mlflow_cf.structures.kernels.triple_events import choose_cells, join_cells, list_events
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, Grid, TripleRoom
from mlflow_cf.structures.kernels.triples import add_up_model, near_range, note_edges, note_thresholds

Array = NDArray[Any]


class Rows(NamedTuple):
    """Rows of which three features change.

    Attributes:
        X: (v, columns) their comparands; see `Walk`.
        which, limit: as in `TriplesBeside`.
    """

    X: Array
    which: Array
    limit: Array


@inner
def _reaches(model: Any, limit: Any, grid: Grid, room: TripleRoom) -> Any:
    """Whether a model may accept a cell of the grid that is no farther than the limit."""
    first, third = grid.least[room.axes[0]], grid.least[room.axes[2]]
    room.edges[model, : room.size[1] * room.size[2]] = 0
    for plane in range(room.size[0]):
        note_edges(plane, 1, room)
        left = limit - max(room.cost[0, plane], first)  # the row's own cell stands for others
        if left < 0:
            continue
        top, bottom = near_range(1, left - third, grid, room)
        if add_up_model(model, (left, top, bottom), grid, room, room.plane[model])[0] >= 0:
            return True
    return False


@inner
def _first_refusing(features: Array, limit: Any, order: Array, what: Any) -> Any:
    """Return the place in `order` (models,) of the first model that refuses all changes of three features; -1: none.

    `what`: the grid, the trees and the workspace.
    """
    grid, trees, room = what
    for place in range(order.size):
        if not choose_cells(features, limit, grid, trees.features.ordered, room):
            return -1
        events = list_events(order[place], grid, trees, room)
        if events > len(room.event):
            return -1
        join_cells(events, True, grid, room)
        if room.size[1] * room.size[2] > room.plane.shape[1]:
            return -1
        if not _reaches(order[place], limit, grid, room):
            return place
    return -1


@kernel
def refuse_triples(asked: AskedTriples, rows: Rows, grid: Grid, trees: Trees, room: TripleRoom, refused: Array) -> None:
    """Write into `refused` (s,) whether a model certainly refuses all changes of each set of three features.

    It overwrites `Grid.X`.
    """
    note_thresholds(asked, trees, room)
    order, present = room.order, -1
    for model in range(order.size):
        order[model] = model
    for number in range(len(asked.features)):
        if rows.which[number] != present:
            present = rows.which[number]
            for column in range(grid.X.size):
                grid.X[column] = rows.X[present, column]
            note_own_paths(grid.X, trees, room.paths)
        place = _first_refusing(asked.features[number], rows.limit[number], order, (grid, trees, room))
        refused[number] = place >= 0
        if place > 0:
            order[0], order[place] = order[place], order[0]
