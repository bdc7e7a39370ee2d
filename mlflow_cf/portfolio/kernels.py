"""The nearest single change of each row of a block.

A row is settled where the nearest change that may turn the decision certainly does, and nothing else is as near; where
some that are nearer are in doubt, they are scored as rows first. The values of a number are looked at from the row's
own value outwards, so that those beyond the nearest change known so far need not be. All other rows are left to the
search of single rows, which knows more.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.programs import RuleProgram, keeps
from mlflow_cf.kernel import inner, kernel
from mlflow_cf.problem.distance import DistanceFormula, cost_of, scaled_change
from mlflow_cf.problem.single_features import OwnProgram, PackedColumns
from mlflow_cf.rounding import ROUNDING, loosened

Array = NDArray[Any]
TIES: Final = 16  # changes no farther than the nearest that is sure; the search of single rows takes care of more
MOST_TIES: Final = 8  # of these that are lawful: they are verified together
LOST: Final = 2**30  # that many are noted where there was no room for one that may be nearer than all others
# What is known of a row: nothing; all single changes, beside which two may be as near; its nearest counterfactual; that
# rules over several features refuse the nearest single changes; the nearest ones, of which some are in doubt
LEFT, UNTIL_TWO, SETTLED, UNTIL_LAWFUL, IN_DOUBT = range(5)


class Setting(NamedTuple):
    """What all rows share.

    Attributes:
        packed: the values of all features, feature after feature.
        formula: the distance.
        own_rules: the rules about one feature each; joint: those about several.
        frozen: (n,) features that no row may change; linked: (n,) features that rules over several speak of.
        cell: (t,) the cell of every value among those of all features; -1: the model tells all values apart.
        refused: (t,) values that no row may take.
        most: how many features may change.
    """

    packed: PackedColumns
    formula: DistanceFormula
    own_rules: OwnProgram
    joint: RuleProgram
    frozen: Array
    linked: Array
    cell: Array
    refused: Array
    most: int


class BlockRows(NamedTuple):
    """Rows to explain.

    Attributes:
        X: (m, d) their codes; own_at: (m, n) their own values as `BoundDistance.positions` maps them.
        may, sure: (m,) from which decision scores on a row's target may be met, and certainly is.
        lawful: (m,) whether rules outside of the programs accept the row as it is.
    """

    X: Array
    own_at: Array
    may: Array
    sure: Array
    lawful: Array


class Singles(NamedTuple):
    """What is known of rows.

    Attributes:
        place: (m,) the position of the nearest change among all values that turns the decision; -1: there is none.
        far: (m,) how far it is; inf: there is none.
        ties: (m,) how many are verified with it, itself among them: those as near, or those in doubt that are scored.
        known: (m,) LEFT, UNTIL_TWO, SETTLED, UNTIL_LAWFUL or IN_DOUBT.
        doubts: (m, TIES) of rows IN_DOUBT the positions of all changes that may turn the decision, up to the nearest
            that certainly does; -1: there are no more.
        sure: (m, TIES) whether each certainly does; least: (m, 2) see `Nearest`.
    """

    place: Array
    far: Array
    ties: Array
    known: Array
    doubts: Array
    sure: Array
    least: Array

    @classmethod
    def none(cls, rows: int) -> Singles:
        """Return that nothing is known of so many rows."""
        place, (ties, known) = np.full(rows, -1, dtype=np.int64), np.array([[0], [LEFT]]).repeat(rows, axis=1)
        doubts, sure = np.full((rows, TIES), -1, dtype=np.int64), np.zeros((rows, TIES), dtype=np.bool_)
        return cls(place, np.full(rows, np.inf), ties, known, doubts, sure, np.full((rows, 2), np.inf))


class Nearest(NamedTuple):
    """The nearest changes of one row so far.

    Attributes:
        place, far, sure: (TIES,) of each; group: (TIES,) what it changes.
        noted: (1,) how many there are; more than TIES if there was no room for some.
        cutoff: (1,) what is farther is of no use.
        least: (2,) what the cheapest two changes of different features cost at least.
        candidate: (d,) a copy of the row, to put values in; stack: working memory of the rules' programs.
    """

    place: Array
    far: Array
    sure: Array
    group: Array
    noted: Array
    cutoff: Array
    least: Array
    candidate: Array
    stack: Array

    @classmethod
    def room(cls, columns: int, steps: int) -> Nearest:
        """Return arrays to work in, for rows (d,) and programs of at most so many steps."""
        (far, sure), (place, group) = np.empty((2, TIES)), np.empty((2, TIES), dtype=np.int64)
        few = np.empty(1, dtype=np.int64), np.empty(1), np.empty(2)
        return cls(place, far, sure, group, *few, np.empty(columns), np.empty(steps))


@inner
def _sift(order: Array, key: Array, at: Any, count: Any) -> None:
    """Let a position sink in a heap whose largest key is on top."""
    held = order[at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and key[order[child + 1]] > key[order[child]]:
            child += 1
        if key[order[child]] <= key[held]:
            break
        order[at] = order[child]
        at = child
    order[at] = held


@inner
def sort_by(order: Array, key: Array, count: Any) -> None:
    """Write positions (count,) in ascending order of their keys."""
    for at in range(count):
        order[at] = at
    for at in range(count // 2 - 1, -1, -1):
        _sift(order, key, at, count)
    for last in range(count - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        _sift(order, key, 0, last)


@inner
def cost_at(setting: Setting, rows: BlockRows, row: Any, group: Any, place: Any) -> Any:
    """Return what a change to the value at a place adds to the distance."""
    packed = setting.packed
    own, weight = rows.X[row, packed.column[group]], packed.weight[group]
    value, at = packed.values[place], packed.positions[place]
    change = scaled_change(value, own, at, rows.own_at[row, group], packed.scaled, group) * weight
    return cost_of(change, weight, setting.formula)


@inner
def begin_row(x0: Array, near: Nearest) -> None:
    """Forget the last row, and copy one."""
    near.noted[0], near.cutoff[0] = 0, np.inf
    near.least[:] = np.inf
    for column in range(x0.size):
        near.candidate[column] = x0[column]


@inner
def note_least(cost: Any, near: Nearest) -> None:
    """Note what a feature's cheapest change costs at least."""
    if cost < near.least[0]:
        near.least[1] = near.least[0]
        near.least[0] = cost
    elif cost < near.least[1]:
        near.least[1] = cost


@inner
def is_lawful(setting: Setting, x0: Array, near: Nearest, group: Any, place: Any) -> Any:
    """Whether the rules about a feature alone allow a value."""
    first, last = setting.own_rules.start[group], setting.own_rules.start[group + 1]
    if first == last or setting.refused[place]:
        return not setting.refused[place]
    column = setting.packed.column[group]
    near.candidate[column] = setting.packed.values[place]
    kept = keeps(setting.own_rules.program, first, last, near.candidate, x0, near.stack)
    near.candidate[column] = x0[column]
    return kept


@inner
def _drop_farther(limit: Any, near: Nearest) -> None:
    """Forget the changes that are farther than a limit."""
    kept = 0
    for at in range(min(near.noted[0], TIES)):
        if near.far[at] <= limit:
            near.place[kept], near.far[kept] = near.place[at], near.far[at]
            near.sure[kept], near.group[kept] = near.sure[at], near.group[at]
            kept += 1
    near.noted[0] = kept if near.noted[0] < LOST else near.noted[0]


@inner
def consider(near: Nearest, group: Any, place: Any, far: Any, sure: Any) -> None:
    """Note a lawful change that may turn the decision, and drop those that are farther than the nearest sure one."""
    limit = loosened(far)
    if sure > 0.0 and limit < near.cutoff[0]:
        near.cutoff[0] = limit
        _drop_farther(limit, near)
    if near.noted[0] < TIES:
        at = near.noted[0]
        near.place[at], near.far[at], near.sure[at], near.group[at] = place, far, sure, group
    elif sure == 0.0:
        near.noted[0] = LOST
    near.noted[0] += 1


@inner
def _is_looked_at(setting: Setting, near: Nearest, own: Any, change: Any) -> Any:
    """Whether the model tells a change from the row itself, and from the one to the same side that was noted last.

    Where it does not, the nearer one stands for both. The search of single rows keeps those of features that rules over
    several speak of, and the only other value of a feature.
    """
    (value, cell, ranked), (group, place) = own, change
    packed, at = setting.packed, near.noted[0] - 1
    if setting.linked[group]:
        return True
    if setting.cell[place] == cell and _values_known(packed, group, value) > 2:
        return False
    if not ranked or at < 0 or at >= TIES or near.group[at] != group:
        return True
    last = near.place[at]
    same_side = (packed.values[last] > value) == (packed.values[place] > value)
    return setting.cell[last] != setting.cell[place] or not same_side


@inner
def _values_known(packed: PackedColumns, group: Any, own: Any) -> Any:
    """Return how many values of a feature are known, the row's own among them."""
    first, stop = packed.start[group], packed.start[group + 1]
    if stop - first > 2:
        return stop - first
    beside = 1
    for place in range(first, stop):
        beside -= packed.values[place] == own
    return stop - first + beside


@inner
def _drop_alike(setting: Setting, near: Nearest) -> None:
    """Of values that the model does not tell apart and that are equally far, keep the first.

    Levels are, and numbers where the row's own one is missing.
    """
    kept = 0
    for at in range(near.noted[0]):
        group, place, alike = near.group[at], near.place[at], False
        if not setting.linked[group] and setting.cell[place] >= 0:
            for other in range(kept):
                same = near.group[other] == group and setting.cell[near.place[other]] == setting.cell[place]
                alike = alike or (same and near.far[other] == near.far[at])
        if not alike:
            near.place[kept], near.far[kept] = place, near.far[at]
            near.sure[kept], near.group[kept] = near.sure[at], group
            kept += 1
    near.noted[0] = kept


@inner
def _precedes(setting: Setting, x0: Array, near: Nearest, one: Any, two: Any) -> Any:
    """Whether a change comes before another one: it is nearer, or its row has the smaller codes."""
    if near.far[one] != near.far[two]:
        return near.far[one] < near.far[two]
    first, second = setting.packed.column[near.group[one]], setting.packed.column[near.group[two]]
    value, other = setting.packed.values[near.place[one]], setting.packed.values[near.place[two]]
    if first == second:
        return value < other
    if first < second:  # the other row has its own value there, of which a missing one comes last
        return not value >= x0[first]
    return other >= x0[second]


@inner
def _first_of_ties(setting: Setting, x0: Array, near: Nearest) -> Any:
    """Return the first of the nearest changes, and how many are lawful."""
    best, lawful = -1, 0
    for at in range(near.noted[0]):
        column = setting.packed.column[near.group[at]]
        near.candidate[column] = setting.packed.values[near.place[at]]
        if keeps(setting.joint, 0, setting.joint.rule.size - 1, near.candidate, x0, near.stack):
            lawful += 1
            if best < 0 or _precedes(setting, x0, near, at, best):
                best = at
        near.candidate[column] = x0[column]
    return best, lawful


@inner
def _in_doubt(near: Nearest) -> Any:
    """Whether some of the changes that were noted may not turn the decision."""
    doubts = 0
    for at in range(near.noted[0]):
        doubts += near.sure[at] == 0.0
    return doubts > 0


@inner
def _note_doubts(setting: Setting, near: Nearest, row: Any, out: Singles) -> None:
    """Write the changes of a row of which some are in doubt, unless rules over several features may speak of them."""
    for at in range(near.noted[0]):
        if setting.linked[near.group[at]]:
            return
    for at in range(near.noted[0]):
        out.doubts[row, at], out.sure[row, at] = near.place[at], near.sure[at] > 0.0
    out.known[row], out.least[row, 0], out.least[row, 1] = IN_DOUBT, near.least[0], near.least[1]


@inner
def settle_row(setting: Setting, x0: Array, near: Nearest, which: Any, out: Singles) -> None:
    """Write the nearest change of a row if the row is lawful, and whether it settles the row."""
    row, stays = which
    out.place[row], out.far[row], out.ties[row], out.known[row] = -1, np.inf, 0, LEFT
    if stays and near.noted[0] == 0:
        out.known[row] = UNTIL_TWO
    if not stays or near.noted[0] < 1 or near.noted[0] > TIES:
        return
    if near.noted[0] > 1:
        _drop_alike(setting, near)
    if _in_doubt(near):
        _note_doubts(setting, near, row, out)
        return
    best, lawful = _first_of_ties(setting, x0, near)
    if 0 < lawful <= MOST_TIES:
        far, two = near.far[best], (near.least[0] + near.least[1]) * (1.0 - 2 * ROUNDING)
        out.place[row], out.far[row], out.ties[row] = near.place[best], far, lawful
        out.known[row] = SETTLED if loosened(far) < two else UNTIL_TWO
    elif lawful == 0:
        out.known[row] = UNTIL_LAWFUL


@inner
def stays_lawful(setting: Setting, x0: Array, near: Nearest) -> Any:
    """Whether the rules accept every value of a row as it is."""
    start = setting.own_rules.start
    return keeps(setting.own_rules.program, 0, start[start.size - 1], x0, x0, near.stack)


@inner
def first_above(packed: PackedColumns, group: Any, own: Any) -> Any:
    """Return the place of the first value of a feature that is not less than the row's own."""
    low, high = packed.start[group], packed.start[group + 1]
    while low < high:
        middle = (low + high) // 2
        if packed.values[middle] < own:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def is_ranked(packed: PackedColumns, group: Any, own: Any) -> Any:
    """Whether values cost more the farther they are from the row's own."""
    return packed.scaled.scale[group] != 0 and own < packed.scaled.unknown_from[group]


@kernel
def nearest_by_cells(
    setting: Setting, rows: BlockRows, cells: Array, scores: Array, near: Nearest, out: Singles
) -> None:
    """Settle rows, of which each is in some `cells` (m, d), by their decision scores (m, all cells).

    A score is that of the row with one feature changed to the cell.
    """
    packed = setting.packed
    for row in range(len(rows.X)):
        x0 = rows.X[row]
        begin_row(x0, near)
        lawful = rows.lawful[row] and stays_lawful(setting, x0, near)
        for group in range(packed.column.size if lawful else 0):
            if setting.frozen[group]:
                continue
            own = x0[packed.column[group]]
            first, stop, least = packed.start[group], packed.start[group + 1], np.inf
            ranked = is_ranked(packed, group, own)
            middle, here = first_above(packed, group, own) if ranked else first, (own, cells[row, group], ranked)
            for side in range(2 if ranked else 1):
                place, step = (middle, 1) if side == 0 else (middle - 1, -1)
                while first <= place < stop:
                    if packed.values[place] != own:
                        far = cost_at(setting, rows, row, group, place)
                        least = min(least, far)
                        score = scores[row, setting.cell[place]]
                        if far > near.cutoff[0]:
                            if ranked:
                                break
                        elif (
                            score >= rows.may[row]
                            and _is_looked_at(setting, near, here, (group, place))
                            and is_lawful(setting, x0, near, group, place)
                        ):
                            consider(near, group, place, far, 1.0 if score >= rows.sure[row] else 0.0)
                    place += step
            note_least(least, near)
        settle_row(setting, x0, near, (row, lawful), out)


@kernel
def nearest_of_doubts(
    setting: Setting, rows: BlockRows, doubtful: Array, turns: Array, near: Nearest, out: Singles
) -> None:
    """Settle rows IN_DOUBT (n,) by which of their changes (n, TIES) turn the decision.

    Those that are farther than two changes may be are not verified with the others.
    """
    for which in range(doubtful.size):
        row = doubtful[which]
        x0 = rows.X[row]
        begin_row(x0, near)
        near.least[0], near.least[1] = out.least[row, 0], out.least[row, 1]
        two = loosened((near.least[0] + near.least[1]) * (1.0 - ROUNDING))
        for at in range(TIES):
            place = out.doubts[row, at]
            if place >= 0 and turns[which, at]:
                group = np.searchsorted(setting.packed.start, place, side="right") - 1
                kept, far = near.noted[0], cost_at(setting, rows, row, group, place)
                if far > two:
                    continue
                near.place[kept], near.far[kept], near.sure[kept], near.group[kept] = place, far, 1.0, group
                near.noted[0] += 1
        settle_row(setting, x0, near, (row, True), out)
