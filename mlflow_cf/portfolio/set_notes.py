"""Which changed sets of a row are nearest, as far as a block's kernels know: noted while they look, and chosen then.

What counts as an evaluation is the same as in the search of a single row (`explainers.geco.sweeps`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mlflow_cf.engine.larger_sets import begin_sets, next_set_within
from mlflow_cf.engine.units.kernels import note_nearest
from mlflow_cf.kernel import inner
from mlflow_cf.portfolio.kernels import sort_by
from mlflow_cf.portfolio.pair_kernels import APART
from mlflow_cf.portfolio.pair_room import NOT_SETTLED
from mlflow_cf.portfolio.set_room import CERTAIN, DOUBTFUL, FIRST, IN_DOUBT, MISSES, SECOND, FoundSets, SetNotes
from mlflow_cf.rounding import loosened

SMALLEST: Final = 3  # changes of sets that are not all looked at


@inner
def begin(notes: SetNotes) -> None:
    """Forget the last row."""
    notes.nearest[:, :], notes.far[:, :], notes.alone[:, :] = np.inf, np.inf, np.inf
    notes.top_far[:], notes.top_set[:] = np.inf, -1


@inner
def farthest_of(notes: SetNotes) -> Any:
    """Return how far an answer may be: as many changed sets as are wanted have nearer ones."""
    return loosened(notes.top_far[notes.top_far.size - 1])


@inner
def note_alone(group: Any, place: Any, cost: Any, sure: Any, notes: SetNotes) -> None:
    """Note a lawful single change that may turn the decision."""
    alone = notes.alone[group]
    if cost < alone[FIRST]:
        alone[FIRST], alone[SECOND] = cost, alone[FIRST]
    elif cost < alone[SECOND]:
        alone[SECOND] = cost
    if not sure:
        alone[IN_DOUBT] = min(alone[IN_DOUBT], cost)
    elif cost < notes.far[group, group]:
        notes.far[group, group], notes.one[group, group], notes.two[group, group] = cost, place, -1
        note_nearest(group, group, cost, notes)


@inner
def limit_of(one: Any, two: Any, notes: SetNotes) -> Any:
    """Return how far candidates may be that change two features."""
    return min(notes.limit[0], loosened(notes.nearest[one, two]))


@inner
def _make_space(notes: SetNotes) -> None:
    """Forget pairs that are too far by now; if half of the room stays in use, there is none."""
    seen, kept = notes.seen, 0
    for at in range(min(seen.total[0], seen.far.size)):
        if seen.far[at] <= limit_of(notes.group[seen.one[at]], notes.group[seen.two[at]], notes):
            seen.one[kept], seen.two[kept] = seen.one[at], seen.two[at]
            seen.far[kept], seen.kind[kept] = seen.far[at], seen.kind[at]
            kept += 1
    seen.total[0] = kept if 2 * kept <= seen.far.size else seen.far.size + 1  # of so many there may be too many


@inner
def see(one: Any, two: Any, far: Any, kind: Any, notes: SetNotes) -> None:
    """Keep a lawful pair of changes that may turn the decision."""
    seen = notes.seen
    if kind == CERTAIN:
        note_nearest(notes.group[one], notes.group[two], far, notes)
        notes.limit[0] = min(notes.limit[0], farthest_of(notes))
    if seen.total[0] == seen.far.size:
        _make_space(notes)
    at = seen.total[0]
    if at < seen.far.size:
        seen.one[at], seen.two[at], seen.far[at], seen.kind[at] = one, two, far, kind
        seen.total[0] += 1


@inner
def choose_pairs(notes: SetNotes, cutoff: Any) -> Any:
    """Write the nearest pair of every changed set; return how many are as near, < 0: some may not be answers."""
    seen, scored = notes.seen, 0
    _make_space(notes)
    if seen.total[0] > seen.far.size:
        return NOT_SETTLED
    for at in range(seen.total[0]):
        far, one, two = seen.far[at], seen.one[at], seen.two[at]
        if seen.kind[at] == DOUBTFUL:
            return NOT_SETTLED
        if far >= cutoff:
            continue
        scored += 1
        if seen.kind[at] == MISSES:
            continue
        first, second, here, there = notes.group[one], notes.group[two], notes.place[one], notes.place[two]
        best = notes.far[first, second]
        equal = far == best and (here, there) < (notes.one[first, second], notes.two[first, second])
        if far < best or equal:
            notes.far[first, second], notes.one[first, second], notes.two[first, second] = far, here, there
    return scored


@inner
def singles_known(notes: SetNotes) -> Any:
    """Return how many of the nearest two single changes of every feature may suffice; < 0: some of these may not."""
    scored = 0
    for group in range(len(notes.alone)):
        alone = notes.alone[group]
        if alone[IN_DOUBT] < np.inf and alone[IN_DOUBT] <= alone[SECOND] * (1.0 + APART):
            return NOT_SETTLED
        scored += (alone[FIRST] < np.inf) + (alone[SECOND] < np.inf)
    return scored


@inner
def order_sets(notes: SetNotes) -> Any:
    """Put the changed sets with a candidate in order; return how many there are."""
    many, d = 0, len(notes.far)
    for one in range(d):
        for two in range(one, d):
            if notes.far[one, two] < np.inf:
                notes.key[many], notes.which[many] = notes.far[one, two], one * d + two
                many += 1
    sort_by(notes.order, notes.key, many)
    return many


@inner
def last_of(notes: SetNotes) -> Any:
    """Return how far the last of the sets is, in order, that are wanted."""
    return notes.key[notes.order[notes.top_far.size - 1]]


@inner
def begin_larger(least: Any, notes: SetNotes) -> None:
    """Prepare to go through larger sets of features of which the changes cost at `least` (d,) so much."""
    larger = notes.larger
    sort_by(larger.feature, least, larger.feature.size)
    for at in range(larger.feature.size):
        larger.cost[at] = least[larger.feature[at]]
    begin_sets(larger)


@inner
def none_larger(least: Any, most: Any, notes: SetNotes) -> Any:
    """Whether certainly no three changes cost as little as the last set that is wanted."""
    begin_larger(least, notes)
    return next_set_within(notes.larger, last_of(notes) * (1.0 + APART), SMALLEST, most) == 0


@inner
def write_sets(row: Any, many: Any, counted: Any, notes: SetNotes, out: FoundSets) -> None:
    """Write the nearest candidates of `many` changed sets that are in order.

    `counted`: how many were scored, and what else counts as evaluations, for sets of up to two changes and of three.
    """
    most, d = out.places.shape[1], len(notes.far)
    if many > most and notes.key[notes.order[most]] <= notes.key[notes.order[most - 1]] * (1.0 + APART):
        return  # which of them are verified depends on more than the distance
    for at in range(min(many, most)):
        which = notes.which[notes.order[at]]
        if which < d * d:
            one, two = divmod(which, d)
            out.places[row, at, 0], out.places[row, at, 1] = notes.one[one, two], notes.two[one, two]
        else:
            for axis in range(3):
                out.places[row, at, axis] = notes.three[which - d * d, axis]
    out.many[row], out.scored[row] = min(many, most), counted[0]
    out.paired[row], out.tripled[row] = counted[1], counted[2]
