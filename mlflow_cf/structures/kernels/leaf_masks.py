"""The leaves of trees as bits: what a set of candidates may reach at most takes a word and a number per tree.

Every tree has a word, or several, with a bit for each of its leaves, those with the largest values first. A feature
that takes some cells leaves some of the leaves, so that the leaves that a box may reach are the common bits of one word
per feature; the first of them has the largest value (Lucchese et al., QuickScorer, SIGIR 2015, which scores rows so).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.kernel import inner, kernel, summing
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
        value: (64 words,) values of leaves, rounded up, in the slots of their bits.
        base: (models,) added to the sums of leaves; off: (models,) how much too large these may be by the rounding.
        kinds: (models, d) how many kinds of cells a model tells apart; where: (models, d) the first word of the first.
        accepts: of every kind, the leaves that accept it, as many words as the model has.
    """

    first: Array
    tree: Array
    several: Array
    value: Array
    base: Array
    off: Array
    kinds: Array
    where: Array
    accepts: Array


class LeafRanges(NamedTuple):
    """The leaves that accept some kind of a range: the common bits of those of a word for each of its ends.

    Attributes:
        words: `LeafMasks.accepts`; as many words again of the leaves that accept a kind or one before it; as many of
            those that accept it or one after it; and a model's words with all bits.
        spanned: (models, d) of how many kinds, from the first one on, these common bits are no more than that: leaves
            accept them one after the other. All, all but the last one, which may be missing values, or 0.
    """

    words: Array
    spanned: Array


@inner
def _spans(first: Any, last: Any, size: Any, part: Any, words: Array) -> Any:
    """Write the words of kinds and those before or after them; whether their common bits are those of ranges."""
    for at in range(first, last):
        words[part + at] = words[at] | (words[part + at - size] if at >= first + size else _NONE)
    for at in range(last - 1, first - 1, -1):
        words[2 * part + at] = words[at] | (words[2 * part + at + size] if at < last - size else _NONE)
    spanned = True
    for at in range(first, last):
        spanned &= words[at] == words[part + at] & words[2 * part + at]
    return spanned


@kernel
def note_ranges(masks: LeafMasks, ranges: LeafRanges) -> None:
    """Write the words of kinds and those before or after them, and of how many kinds they tell ranges."""
    for model in range(masks.base.size):
        size = masks.first[model + 1] - masks.first[model]
        for feature in range(masks.kinds.shape[1]):
            first, kinds, spanned = masks.where[model, feature], masks.kinds[model, feature], False
            for left_out in range(2):
                if not spanned:
                    count = kinds - left_out
                    spanned = _spans(first, first + count * size, size, masks.accepts.size, ranges.words)
                    ranges.spanned[model, feature] = count if spanned else 0


@inner
def _value(word: Any, place: Any, masks: LeafMasks) -> Any:
    """Return the largest value of the leaves in a word at an unsigned place."""
    slot = ((word & (~word + _ONE)) * _SEQUENCE) >> _UPPER
    return np.float64(masks.value[(place << _SIX) | slot])


@inner
def _smallest_value(word: Any, place: Any, masks: LeafMasks) -> Any:
    """Return the smallest value of the leaves in a word at an unsigned place."""
    for shift in (1, 2, 4, 8, 16, 32):  # all bits below the highest one
        word |= word >> np.uint64(shift)
    slot = ((word ^ (word >> _ONE)) * _SEQUENCE) >> _UPPER
    return np.float64(masks.value[(place << _SIX) | slot])


@summing
def largest_sum(model: Any, left: Array, begin: Any, rows: Array, masks: LeafMasks, ranges: LeafRanges) -> Any:
    """Return what the leaves of a model add up to at most that are common to several rows of words.

    Args:
        model: one that has one word a tree.
        left: the first row, from `begin` on.
        rows: (6,) where the others begin in the words of ranges.
        masks, ranges: the leaves.
    """
    total, first, start, words = masks.base[model], np.uint64(masks.first[model]), np.uint64(begin), ranges.words
    a, b, c = np.uint64(rows[0]), np.uint64(rows[1]), np.uint64(rows[2])  # unsigned: no index can be negative
    d, e, f = np.uint64(rows[3]), np.uint64(rows[4]), np.uint64(rows[5])
    for tree in range(masks.first[model + 1] - masks.first[model]):
        at = np.uint64(tree)
        word = left[start + at] & words[a + at] & words[b + at] & words[c + at]
        total += _value(word & words[d + at] & words[e + at] & words[f + at], first + at, masks)
    return total


@inner
def largest_sum_of_words(model: Any, left: Array, masks: LeafMasks) -> Any:
    """Do the same of a model whose trees may have several words, of one row: the first word has the largest values."""
    total, first, at = masks.base[model], masks.first[model], masks.first[model]
    while at < masks.first[model + 1]:
        if left[at - first] == _NONE:
            at += 1
            continue
        total += _value(left[at - first], np.uint64(at), masks)
        at = masks.tree[at]
    return total


@inner
def smallest_sum_of_words(model: Any, left: Array, masks: LeafMasks) -> Any:
    """Return what the leaves of a model add up to at least, of one row of words: a tree's last one has the smallest."""
    total, first, at = masks.base[model], masks.first[model], masks.first[model]
    while at < masks.first[model + 1]:
        last = masks.tree[at] - 1
        while last > at and left[last - first] == _NONE:
            last -= 1
        if left[last - first] != _NONE:
            total += _smallest_value(left[last - first], np.uint64(last), masks)
        at = masks.tree[at]
    return total


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
