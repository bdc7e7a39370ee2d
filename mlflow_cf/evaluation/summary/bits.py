"""Sets of rows as bits: 64 rows a word, the first row in the lowest bit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.kernel import kernel

Array = NDArray[Any]
Words = NDArray[np.uint64]
WORD: Final = 64
BYTE: Final = 8


def words(rows: int) -> int:
    """Return how many words hold so many rows."""
    return -(-rows // WORD)


def packed(flags: Bools) -> Words:
    """Return flags (..., n) as words (..., w); rows beyond the last are not set."""
    whole = np.zeros((*flags.shape[:-1], words(flags.shape[-1]) * BYTE), dtype=np.uint8)
    some = np.packbits(flags, axis=-1, bitorder="little")
    whole[..., : some.shape[-1]] = some
    found: Words = whole.view("<u8").astype(np.uint64, copy=False)
    return found


def flags_of(bits: Words, rows: int) -> Bools:
    """Return words (..., w) as flags (..., rows)."""
    whole = np.ascontiguousarray(bits.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(whole, axis=-1, count=rows, bitorder="little").view(np.bool_)


def counts(bits: Words, mask: Words) -> NDArray[np.int64]:
    """Return how many rows of a mask (w,) each of the sets (c, w) has."""
    found = np.empty(len(bits), dtype=np.int64)
    count_rows(np.ascontiguousarray(bits), mask, found)
    return found


def weights_of(bits: Words, weights: Floats) -> Floats:
    """Return the total weight of each of the sets (c, w), of weights (n,) of the rows."""
    whole = np.zeros(bits.shape[1] * WORD)
    whole[: len(weights)] = weights
    table, found = np.zeros((bits.shape[1] * BYTE, 2**BYTE)), np.empty(len(bits))
    for place in range(BYTE):  # the sums of all sets of eight rows, built up row by row
        half = 1 << place
        table[:, half : 2 * half] = table[:, :half] + whole[place::BYTE, None]
    add_weights(np.ascontiguousarray(bits), table, found)
    return found


@kernel
def count_rows(bits: Array, mask: Array, found: Array) -> None:
    """Write the number (c,) of bits that sets (c, w) and a mask (w,) have in common."""
    twos, fours = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
    nibbles, ones = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
    for row in range(len(bits)):
        total = np.uint64(0)
        for at in range(mask.size):
            word = bits[row, at] & mask[at]
            word -= (word >> np.uint64(1)) & twos
            word = (word & fours) + ((word >> np.uint64(2)) & fours)
            total += (((word + (word >> np.uint64(4))) & nibbles) * ones) >> np.uint64(56)
        found[row] = np.int64(total)


@kernel
def add_weights(bits: Array, table: Array, found: Array) -> None:
    """Write the total weight (c,) of sets (c, w), from the sums (8 w, 256) of all sets of eight rows."""
    for row in range(len(bits)):
        total = 0.0
        for at in range(bits.shape[1]):
            word = bits[row, at]
            if word:
                for byte in range(8):
                    total += table[8 * at + byte, np.int64((word >> np.uint64(8 * byte)) & np.uint64(255))]
        found[row] = total
