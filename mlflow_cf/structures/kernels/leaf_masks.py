"""The leaves of trees as bits: what a set of candidates may reach at most takes a word and a number per tree.

Every tree has a word, or several, with a bit for each of its leaves, those with the largest values first. A feature
that takes some cells leaves some of the leaves, so that the leaves that a box may reach are the common bits of one word
per feature; the first of them has the largest value (Lucchese et al., QuickScorer, SIGIR 2015, which scores rows so).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel
from mlflow_cf.structures.kernels.trees import FEATURE, LEFT, Array, Trees

BITS: Final = 64  # of a word
# A word with one bit times this number has another one in its upper six bits for each of the 64 (a de Bruijn sequence).
_NUMBER = 0x03F79D71B4CB0A89
_SEQUENCE = np.uint64(_NUMBER)
_UPPER, _SIX = np.uint64(58), np.uint64(6)
_ONE, _NONE = np.uint64(1), np.uint64(0)
SLOTS: Final[NDArray[np.int64]] = np.array(
    [((1 << bit) * _NUMBER % 2**64) >> 58 for bit in range(BITS)], dtype=np.int64
)  # where the value of the leaf with each bit is


class LeafMasks(NamedTuple):
    """The leaves of several models.

    Attributes:
        first: (models + 1,) where the words of each model start; tree: (words,) where those of the next tree do.
        several: (models,) whether some of a model's trees have several words.
        tested: (d, words) of every model the words of trees that test a feature, in ascending order, then the others;
            split: (models, d) how many of the former there are.
        value: (64 words,) values of leaves, in the slots of their bits.
        span: (d, 64 words, 2) the first and the last kind of a feature's cells that each leaf accepts, in these slots;
            spanned: (models, d) whether every leaf accepts all kinds between them.
        base: (models,) added to the sums of leaves.
        kinds: (models, d) how many kinds of cells a model tells apart; where: (models, d) the first word of the first.
        accepts: of every kind, the leaves that accept it, as many words as the model has.
    """

    first: Array
    tree: Array
    several: Array
    tested: Array
    split: Array
    value: Array
    span: Array
    spanned: Array
    base: Array
    kinds: Array
    where: Array
    accepts: Array


@inner
def _largest(place: Any, words: Array, others: Array, where: Any, masks: LeafMasks) -> Any:
    """Return the largest value of the leaves in a word; its positions are unsigned, so that none can be negative."""
    word = words[np.uint64(place)] & others[np.uint64(where + place)]
    slot = ((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER
    return np.float64(masks.value[(np.uint64(place) << _SIX) | slot])


@inner
def largest_value(words: Array, others: Array, where: Any, some: Array, several: Any, masks: LeafMasks) -> Any:
    """Return what leaves of some trees add up to at most that are in `words` and in `others`.

    Args:
        words: (n,) of all trees; others: the same, from `where` on.
        some: positions of the words of these trees, in ascending order; several: whether a tree may have several.
        masks: the leaves.
    """
    one, two, at, size = 0.0, 0.0, 0, some.size
    if several:
        while at < size:
            place, at = np.int64(some[np.uint64(at)]), at + 1
            if words[place] & others[where + place] != _NONE:
                one += _largest(place, words, others, where, masks)
                while at < size and some[at] < masks.tree[place]:  # the values of further words are smaller
                    at += 1
        return one
    while at + 1 < size:  # two sums, neither of which waits for the other
        one += _largest(np.int64(some[np.uint64(at)]), words, others, where, masks)
        two += _largest(np.int64(some[np.uint64(at + 1)]), words, others, where, masks)
        at += 2
    if at < size:
        one += _largest(np.int64(some[np.uint64(at)]), words, others, where, masks)
    return one + two


@inner
def add_leaves(model: Any, feature: Any, words: Array, masks: LeafMasks, found: Array) -> None:
    """Add what the leaves in `words` add up to for each kind of a feature's cells; other features have one value each.

    Args:
        model, feature: every leaf accepts all kinds between its first and its last one.
        words: the leaves that the other features' values leave.
        masks: the leaves.
        found: (kinds + 1,) of the feature; zeros.
    """
    first = masks.first[model]
    for at in range(masks.split[model, feature]):
        place = np.int64(masks.tested[feature, first + at])
        word = words[place]
        while word != _NONE:
            slot = np.int64((np.uint64(place) << _SIX) | (((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER))
            value, begin = np.float64(masks.value[slot]), np.int64(masks.span[feature, slot, 0])
            if begin >= 0:
                found[begin] += value
                found[masks.span[feature, slot, 1] + 1] -= value
            word &= word - _ONE
    total = 0.0
    for kind in range(masks.kinds[model, feature]):
        total += found[kind]
        found[kind] = total


@inner
def add_rectangles_of(model: Any, one: Any, two: Any, words: Array, masks: LeafMasks, found: Array) -> None:
    """Do the same for every kind of two features: `found` (kinds + 1 of the first times kinds + 1 of the second,)."""
    width = masks.kinds[model, two] + 1
    for place in range(masks.first[model], masks.first[model + 1]):
        word = words[place]
        while word != _NONE:
            slot = np.int64((np.uint64(place) << _SIX) | (((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER))
            word &= word - _ONE
            value = np.float64(masks.value[slot])
            top, bottom = np.int64(masks.span[one, slot, 0]), masks.span[one, slot, 1] + 1
            left, right = np.int64(masks.span[two, slot, 0]), masks.span[two, slot, 1] + 1
            if top >= 0 and left >= 0:
                found[top * width + left] += value
                found[top * width + right] -= value
                found[bottom * width + left] -= value
                found[bottom * width + right] += value
    for line in range(masks.kinds[model, one]):
        total, at = 0.0, np.int64(line * width)
        for column in range(width - 1):
            total += found[at + column]
            found[at + column] = total + (found[at + column - width] if line else 0.0)


@inner
def add_lines_of(model: Any, one: Any, two: Any, words: Array, masks: LeafMasks, found: Array) -> None:
    """Do the same where leaves accept kinds of the second feature that are not one after the other."""
    first, last, width = masks.first[model], masks.first[model + 1], masks.kinds[model, two] + 1
    for kind in range(width - 1):
        where = masks.where[model, two] + kind * (last - first) - first
        for place in range(first, last):
            word = words[place] & masks.accepts[where + place]
            while word != _NONE:
                slot = np.int64((np.uint64(place) << _SIX) | (((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER))
                word &= word - _ONE
                value, top = np.float64(masks.value[slot]), np.int64(masks.span[one, slot, 0])
                if top >= 0:
                    found[top * width + kind] += value
                    found[(masks.span[one, slot, 1] + 1) * width + kind] -= value
    for line in range(1, masks.kinds[model, one]):
        for column in range(width - 1):
            found[line * width + column] += found[(line - 1) * width + column]


@kernel
def note_spans(masks: LeafMasks) -> None:
    """Write the first and the last kind of cells that each leaf accepts, and whether it accepts all between them."""
    for model in range(masks.base.size):
        first, last = masks.first[model], masks.first[model + 1]
        for feature in range(masks.kinds.shape[1]):
            span = masks.span[feature]
            for at in range(BITS * first, BITS * last):
                span[at, 0], span[at, 1] = -1, -1
            masks.spanned[model, feature] = True
            for kind in range(masks.kinds[model, feature]):
                where = masks.where[model, feature] + kind * (last - first) - first
                for place in range(first, last):
                    word = masks.accepts[where + place]
                    while word != _NONE:
                        slot = BITS * place + np.int64(((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER)
                        if span[slot, 0] < 0:
                            span[slot, 0] = kind
                        elif span[slot, 1] < kind - 1:
                            masks.spanned[model, feature] = False
                        span[slot, 1] = kind
                        word &= word - _ONE


class LeafPaths(NamedTuple):
    """The leaves of one model, and workspace.

    Attributes:
        roots: (trees,) of its trees; bit: (nodes,) the bit of each leaf, counted from the first word of its model.
        cell: (d, kinds) a cell of every kind of each feature; kinds, where: (d,) as in `LeafMasks`; words: its words.
        way: (levels, 2) nodes on the way, and how many children of each were looked at.
    """

    roots: Array
    bit: Array
    cell: Array
    kinds: Array
    where: Array
    words: int
    way: Array


@kernel
def note_leaves_accepted(trees: Trees, paths: LeafPaths, accepts: Array) -> None:
    """Clear the bits of leaves in `accepts` where a kind of cells fails a test on the path to the leaf."""
    tests, walk, way = trees.nodes.tests, trees.walk, paths.way
    for tree in range(paths.roots.size):
        depth = 0
        way[0, 0], way[0, 1] = paths.roots[tree], 0
        while depth >= 0:
            node = way[depth, 0]
            if tests[node, FEATURE] >= 0 and way[depth, 1] < 2:
                side = way[depth, 1]
                way[depth, 1] += 1
                way[depth + 1, 0], way[depth + 1, 1] = np.int64(tests[node, LEFT]) + side, 0
                depth += 1
                continue
            if tests[node, FEATURE] < 0:
                word, bit = paths.bit[node] // BITS, _ONE << np.uint64(paths.bit[node] % BITS)
                for at in range(depth):
                    test, right = way[at, 0], way[at, 1] == 2
                    feature = np.int64(tests[test, FEATURE])
                    column, wide = walk.key[test] >> 32, walk.start[feature + 1] - walk.start[feature]
                    place = walk.offset[feature] + column - walk.start[feature]
                    for each in range(paths.kinds[feature]):
                        passed = walk.comparands[place + paths.cell[feature, each] * wide]
                        if (passed > (walk.key[test] & 0xFFFFFFFF)) != right:
                            accepts[paths.where[feature] + each * paths.words + word] &= ~bit
            depth -= 1
