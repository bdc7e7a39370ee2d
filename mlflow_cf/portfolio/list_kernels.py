"""The nearest candidates of each row of a block that several models of trees accept, however many changes they take.

The same as `engine.agreed` does for a single row, one row after the other. A row is left to the search of single rows
where its list does not end soon, or where it is not certain that what is listed is accepted.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.programs import keeps
from mlflow_cf.engine import thresholds
from mlflow_cf.kernel import called, inner, kernel
from mlflow_cf.portfolio.kernels import Setting
from mlflow_cf.problem.single_features import BoundColumns, QueryRow, bind_columns
from mlflow_cf.rounding import loosened
from mlflow_cf.structures.kernels.agreement import ALL, AWAIT, SOME, begin_agreed, list_agreed
from mlflow_cf.structures.kernels.agreement_state import BOUNDS, LISTED, Agreeing, AgreementRoom, RowValues
from mlflow_cf.structures.kernels.agreement_values import GridValues, note_values
from mlflow_cf.structures.kernels.leaf_masks import LeafMasks, LeafRanges
from mlflow_cf.structures.kernels.trees import Array

MOST_AS_NEAR: Final = (
    8  # candidates of a row as near as its answer; with up to 8 changes each, they are verified together
)


class ListQuestion(NamedTuple):
    """What all rows share.

    Attributes:
        setting: the values, the distance and the rules.
        kind: (models, t) which values of a feature each model cannot tell apart; total: (t,) these added up.
        masks, ranges: the leaves of the models.
        changes: how many features may change; most: evaluations that a list may count.
        bounds: of models' scores, that are made for a row; at_once: after which no other row is begun.
    """

    setting: Setting
    kind: Array
    total: Array
    masks: LeafMasks
    ranges: LeafRanges
    changes: int
    most: int
    bounds: int
    at_once: int


class ListRows(NamedTuple):
    """Rows to explain.

    Attributes:
        X: (m, d) their codes; own_at: (m, d) their own values as `BoundDistance.positions` maps them.
        kind: (m, models, d) the kinds of their own values; total: (m, d) these added up over all models.
        lawful: (m,) whether rules outside of the programs accept the row as it is.
    """

    X: Array
    own_at: Array
    kind: Array
    total: Array
    lawful: Array


class ListRoom(NamedTuple):
    """Workspace for one row after the other.

    Attributes:
        bound: what rules leave of its values; grid: these, as models see them; row: the same in order.
        places: (n,) where the ordered values come in the grid; order: (n,) to order them.
        listing: of the list; found: (n, k + 2) what it writes.
        candidate: (d,) a copy of the row, to put values in; taken: (d,) where its values come in the grid.
        stack: working memory of the rules' programs.
        no_rules: (0,) no value is refused by further rules.
    """

    bound: BoundColumns
    grid: GridValues
    row: RowValues
    places: Array
    order: Array
    listing: AgreementRoom
    found: Array
    candidate: Array
    taken: Array
    stack: Array
    no_rules: Array


class ListedRows(NamedTuple):
    """What was found.

    Attributes:
        many: (m,) how many candidates of each row are as near as its answer; 0: the row is left.
        places: (m, MOST_AS_NEAR, k) the positions of what each changes among all values; -1: it changes no more.
        far: (m, MOST_AS_NEAR) how far each is; used: (m,) evaluations; bounds: (m,) bounds of models that were made.
    """

    many: Array
    places: Array
    far: Array
    used: Array
    bounds: Array


@inner
def _bind(question: ListQuestion, rows: ListRows, number: Any, room: ListRoom) -> Any:
    """Write the values that a row may take, and what models see in them; whether it may stay as it is."""
    setting, bound, grid = question.setting, room.bound, room.grid
    x0 = rows.X[number]
    for column in range(x0.size):
        room.candidate[column] = x0[column]
    query = QueryRow(x0, rows.own_at[number], setting.refused, room.no_rules, room.candidate, room.stack)
    bind_columns(setting.packed, setting.own_rules, query, setting.formula, bound)
    for group in range(x0.size):
        if not bound.allowed[group]:
            return False
        first = setting.packed.start[group]
        grid.own[group] = bound.start[group] + bound.own[group]
        for at in range(bound.start[group], bound.start[group + 1]):
            place = first + bound.ids[at]
            grid.total[at] = rows.total[number, group] if at == grid.own[group] else question.total[place]
    for model in range(question.kind.shape[0]):
        for group in range(x0.size):
            first = setting.packed.start[group]
            for at in range(bound.start[group], bound.start[group + 1]):
                if at != grid.own[group]:
                    grid.kind[model, at] = question.kind[model, first + bound.ids[at]]
            grid.kind[model, grid.own[group]] = rows.kind[number, model, group]
    return True


@inner
def _note(question: ListQuestion, number: Any, line: Any, count: Any, room: ListRoom, out: ListedRows) -> None:
    """Write the candidate on a line as one of so many of a row, and how far it is; make the row that candidate."""
    packed, bound, far, peak = question.setting.packed, room.bound, 0.0, 0.0
    for level in range(out.places.shape[2]):
        value = room.places[room.found[line, level]] if room.found[line, level] >= 0 else -1
        out.places[number, count, level] = -1
        if value >= 0:
            group = np.searchsorted(bound.start, value, side="right") - 1
            out.places[number, count, level] = packed.start[group] + bound.ids[value]
            room.taken[group], room.candidate[group] = value, bound.values[value]
    for group in range(room.taken.size):  # in the order in which the distance is added up
        far += bound.cost[room.taken[group]]
        peak = max(peak, bound.peak[room.taken[group]])
    c = question.setting.formula.c
    out.far[number, count] = far + c * peak if c != 0 else far


@inner
def _put_back(room: ListRoom) -> None:
    """Make the candidate the row again."""
    for group in range(room.taken.size):
        room.taken[group] = room.grid.own[group]
        room.candidate[group] = room.bound.values[room.grid.own[group]]


@inner
def _drop_farther(number: Any, count: Any, within: Any, out: ListedRows) -> Any:
    """Forget those of so many candidates of a row that are farther than a limit; return how many are left."""
    kept = 0
    for at in range(count):
        if out.far[number, at] <= within:
            out.far[number, kept] = out.far[number, at]
            for level in range(out.places.shape[2]):
                out.places[number, kept, level] = out.places[number, at, level]
            kept += 1
    return kept


@called
def _list_row(question: ListQuestion, x0: Array, number: Any, of: Agreeing, room: ListRoom, out: ListedRows) -> Any:
    """List the candidates of a row that are as near as the first one; return how many; 0: the row is left."""
    joint, count, within, left = question.setting.joint, 0, np.inf, question.most
    bounds, deepest, state = question.bounds, out.places.shape[2], SOME
    wanted: Any = np.int64(1)  # not a literal, for which the list would be compiled once more
    _put_back(room)
    while state == SOME:
        most = min(left * thresholds.BOUNDS_PER_ROW, bounds)
        of.room.tally[BOUNDS] = 0
        state = list_agreed(of, within, wanted, most, room.found)
        work = 1 + of.room.tally[BOUNDS] // thresholds.BOUNDS_PER_ROW
        bounds, listed = bounds - of.room.tally[BOUNDS], of.room.tally[LISTED]
        out.bounds[number] = question.bounds - bounds
        left -= work
        if left < 0 or bounds <= 0 or (state == SOME and listed == 0):
            return 0
        for line in range(listed):
            if room.found[line, deepest] == 0 or count == MOST_AS_NEAR:
                return 0
            _note(question, number, line, count, room, out)
            count += keeps(joint, 0, joint.rule.size - 1, room.candidate, x0, room.stack)
            _put_back(room)
        if count > 0:
            within, wanted = min(within, loosened(out.far[number, 0])), np.int64(thresholds.MOST_AGREED)
        else:
            wanted = min(thresholds.MORE_AGREED * wanted, thresholds.MOST_AGREED)
    out.used[number] = question.most - left
    return _drop_farther(number, count, within, out) if state == ALL else 0


@kernel
def nearest_listed(question: ListQuestion, rows: ListRows, first: Any, room: ListRoom, out: ListedRows) -> Any:
    """Write the nearest candidates of rows that enough models certainly accept, where that is soon known.

    Args:
        question: what all rows share; rows: the rows.
        first: the first of them that is looked at.
        room: workspace.
        out: what is found.

    Returns:
        The next one to be looked at.
    """
    bounds, number = 0, first
    while number < len(rows.X) and bounds < question.at_once:
        out.many[number], out.bounds[number] = 0, 0
        if rows.lawful[number] and _bind(question, rows, number, room):
            changing = note_values(room.grid, question.ranges.spanned, room.row, room.places, room.order)
            row = RowValues(
                room.row.kind,
                room.row.own,
                room.row.cost,
                room.row.peak,
                room.row.begin,
                room.row.middle,
                room.row.ranged,
                room.row.listed,
                room.row.cheapest[:changing],
                room.row.least[:changing],
                room.row.c,
            )
            of = Agreeing(row, question.masks, question.ranges, room.listing)
            begin_agreed(of, question.changes, AWAIT)
            out.many[number] = _list_row(question, rows.X[number], number, of, room, out)
        bounds += out.bounds[number]
        number += 1
    return number
