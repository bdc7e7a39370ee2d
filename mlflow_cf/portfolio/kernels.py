"""The nearest single change of each row of a block.

A row is settled where the nearest change that may turn the decision certainly does, and nothing else is as near. The
values of a number are looked at from the row's own value outwards, so that those beyond the nearest change known so far
need not be. All other rows are left to the search of single rows, which knows more.
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
TIES: Final = 16  # changes as near as the nearest one; of rows with more, the search of single rows takes care
MOST_TIES: Final = 8  # of these that are lawful: they are verified together
TOGETHER: Final = 16  # values that are scored at a time
# What is known of a row: nothing; all single changes, beside which two may be as near; its nearest counterfactual; that
# rules over several features refuse the nearest single changes
LEFT, UNTIL_TWO, SETTLED, UNTIL_LAWFUL = range(4)


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
        ties: (m,) how many are as near as that, itself among them.
        known: (m,) LEFT, UNTIL_TWO, SETTLED or UNTIL_LAWFUL.
    """

    place: Array
    far: Array
    ties: Array
    known: Array


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
def _begin(x0: Array, near: Nearest) -> None:
    near.noted[0], near.cutoff[0] = 0, np.inf
    near.least[:] = np.inf
    for column in range(x0.size):
        near.candidate[column] = x0[column]


@inner
def _note_least(cost: Any, near: Nearest) -> None:
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
def _consider(near: Nearest, group: Any, place: Any, far: Any, sure: Any) -> None:
    """Note a lawful change that may turn the decision, and drop those that are farther than the nearest."""
    limit = loosened(far)
    if limit < near.cutoff[0]:
        near.cutoff[0] = limit
        kept = 0
        for at in range(min(near.noted[0], TIES)):
            if near.far[at] <= limit:
                near.place[kept], near.far[kept] = near.place[at], near.far[at]
                near.sure[kept], near.group[kept] = near.sure[at], near.group[at]
                kept += 1
        near.noted[0] = kept
    if near.noted[0] < TIES:
        at = near.noted[0]
        near.place[at], near.far[at], near.sure[at], near.group[at] = place, far, sure, group
    near.noted[0] += 1


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
    """Return the first of the nearest changes, and how many are lawful; < 0: some may not turn the decision."""
    best, lawful = -1, 0
    for at in range(near.noted[0]):
        if near.sure[at] == 0.0:
            return -1, -1
        column = setting.packed.column[near.group[at]]
        near.candidate[column] = setting.packed.values[near.place[at]]
        if keeps(setting.joint, 0, setting.joint.rule.size - 1, near.candidate, x0, near.stack):
            lawful += 1
            if best < 0 or _precedes(setting, x0, near, at, best):
                best = at
        near.candidate[column] = x0[column]
    return best, lawful


@inner
def _settle(setting: Setting, x0: Array, near: Nearest, which: Any, out: Singles) -> None:
    """Write the nearest change of a row if the row is lawful, and whether it settles the row."""
    row, stays = which
    out.place[row], out.far[row], out.ties[row], out.known[row] = -1, np.inf, 0, LEFT
    if stays and near.noted[0] == 0:
        out.known[row] = UNTIL_TWO
    if not stays or near.noted[0] < 1 or near.noted[0] > TIES:
        return
    if near.noted[0] > 1:
        _drop_alike(setting, near)
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
def _above(packed: PackedColumns, group: Any, own: Any) -> Any:
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
def nearest_by_cells(setting: Setting, rows: BlockRows, scores: Array, near: Nearest, out: Singles) -> None:
    """Settle rows by the decision scores (m, cells) of each with one feature changed to a cell."""
    packed = setting.packed
    for row in range(len(rows.X)):
        x0 = rows.X[row]
        _begin(x0, near)
        lawful = rows.lawful[row] and stays_lawful(setting, x0, near)
        for group in range(packed.column.size if lawful else 0):
            if setting.frozen[group]:
                continue
            own = x0[packed.column[group]]
            first, stop, least = packed.start[group], packed.start[group + 1], np.inf
            ranked = is_ranked(packed, group, own)
            middle = _above(packed, group, own) if ranked else first
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
                        elif score >= rows.may[row] and is_lawful(setting, x0, near, group, place):
                            _consider(near, group, place, far, 1.0 if score >= rows.sure[row] else 0.0)
                    place += step
            _note_least(least, near)
        _settle(setting, x0, near, (row, lawful), out)


class Units(NamedTuple):
    """One layer of units, rectified or not, over the values of all features; see `HiddenLayer`.

    Attributes:
        added: (width, TOGETHER + t + TOGETHER) what every value adds to the units, with room on both sides.
        weights: (width,) of the units in the decision score; shift: what is added to it.
        least: (1,) the least value of a unit: 0 of a rectified one, else minus infinity.
        total: (m, width) the units of the rows; own: (m, n, width) what their own value of each feature adds.
        others: (width,) room for the units of a row without one feature.
        scores, places: (TOGETHER,) room for the decision scores of values, and where these are.
    """

    added: Array
    weights: Array
    shift: Array
    least: Array
    total: Array
    own: Array
    others: Array
    scores: Array
    places: Array


@inner
def _score_neighbours(units: Units, first: Any) -> None:
    """Write the decision scores of the values from place `first` on."""
    least, scores = units.least[0], units.scores
    for at in range(TOGETHER):
        scores[at] = units.shift[0]
    for unit in range(units.weights.size):
        others, weight, added = units.others[unit], units.weights[unit], units.added[unit]
        for at in range(TOGETHER):
            value = others + added[first + TOGETHER + at]
            scores[at] += weight * (max(least, value))


@inner
def _score_sampled(units: Units, first: Any, stop: Any) -> None:
    """Write the decision scores of some values between two places, and where they are."""
    least, scores = units.least[0], units.scores
    for at in range(TOGETHER):
        scores[at] = units.shift[0]
        units.places[at] = first + at * (stop - first - 1) // (TOGETHER - 1)
    for unit in range(units.weights.size):
        others, weight, added = units.others[unit], units.weights[unit], units.added[unit]
        for at in range(TOGETHER):
            value = others + added[units.places[at] + TOGETHER]
            scores[at] += weight * (max(least, value))


@inner
def _leave_out(units: Units, row: Any, group: Any) -> None:
    """Write the units of a row without what its own value of a feature adds."""
    for unit in range(units.weights.size):
        units.others[unit] = units.total[row, unit] - units.own[row, group, unit]


@inner
def _sample(setting: Setting, rows: BlockRows, row: Any, units: Units, near: Nearest) -> None:
    """Find out how far any change need be looked at, by some values of every number."""
    packed = setting.packed
    for group in range(packed.column.size):
        first, stop = packed.start[group], packed.start[group + 1]
        if setting.frozen[group] or stop - first <= 2 * TOGETHER:
            continue
        _leave_out(units, row, group)
        _score_sampled(units, first, stop)
        own = rows.X[row, packed.column[group]]
        for at in range(TOGETHER):
            place = units.places[at]
            if units.scores[at] < rows.sure[row] or packed.values[place] == own:
                continue
            limit = loosened(cost_at(setting, rows, row, group, place))
            if limit < near.cutoff[0] and is_lawful(setting, rows.X[row], near, group, place):
                near.cutoff[0] = limit


@inner
def _scan(setting: Setting, rows: BlockRows, row: Any, span: Any, units: Units, near: Nearest) -> Any:
    """Look at the values of a feature from a place on, up or down; return what the cheapest costs at least."""
    packed, (group, place, step, ranked) = setting.packed, span
    first, stop, least = packed.start[group], packed.start[group + 1], np.inf
    x0 = rows.X[row]
    own, scored = x0[packed.column[group]], stop
    while first <= place < stop:
        if packed.values[place] != own:
            far = cost_at(setting, rows, row, group, place)
            least = min(least, far)
            if far > near.cutoff[0]:
                if ranked:
                    break
            else:
                if not scored <= place < scored + TOGETHER:
                    scored = place if step > 0 else place - TOGETHER + 1
                    _score_neighbours(units, scored)
                score = units.scores[place - scored]
                if score >= rows.may[row] and is_lawful(setting, x0, near, group, place):
                    _consider(near, group, place, far, 1.0 if score >= rows.sure[row] else 0.0)
        place += step
    return least


@kernel
def nearest_by_units(setting: Setting, rows: BlockRows, units: Units, near: Nearest, out: Singles) -> None:
    """Settle rows by units that score values as they are looked at."""
    packed = setting.packed
    for row in range(len(rows.X)):
        x0 = rows.X[row]
        _begin(x0, near)
        lawful = rows.lawful[row] and stays_lawful(setting, x0, near)
        if lawful:
            _sample(setting, rows, row, units, near)
        for group in range(packed.column.size if lawful else 0):
            if setting.frozen[group]:
                continue
            own = x0[packed.column[group]]
            _leave_out(units, row, group)
            ranked = is_ranked(packed, group, own)
            middle = _above(packed, group, own) if ranked else packed.start[group]
            least = _scan(setting, rows, row, (group, middle, 1, ranked), units, near)
            if ranked:
                below = _scan(setting, rows, row, (group, middle - 1, -1, True), units, near)
                least = min(least, below)
            _note_least(least, near)
        _settle(setting, x0, near, (row, lawful), out)
