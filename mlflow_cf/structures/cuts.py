"""Where the tests of encoded numbers change their answer, in terms of the raw numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.columns import Column, NumberColumn

LARGEST = np.finfo(np.float64).max
_BITS = np.int64(2**63 - 1)


def last_values(number: Column, limits: Floats, *, narrow: bool) -> Floats:
    """Return the largest raw values (n,) whose encoded values are at most `limits` (n,).

    To the last bit, since the encoding itself is asked. Infinite where all raw values are, or none is.

    Args:
        number: the encoding, a `NumberColumn`: it never reverses an order.
        limits: ascending.
        narrow: whether encoded values are cast to float32 before they are compared.
    """
    if not isinstance(number, NumberColumn):
        raise TypeError(f"a {type(number).__name__} is no number")
    if not number.steps:
        return _last_narrow(limits) if narrow else limits

    def passes(raw: Floats) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", invalid="ignore"):
            values = number.monotone(raw)
            return (values.astype(np.float32).astype(np.float64) if narrow else values) <= limits

    none, every = ~passes(np.full_like(limits, -LARGEST)), passes(np.full_like(limits, LARGEST))
    # the order of floats is that of their bits read as integers: halve the interval between them until nothing is left
    low, high = _ordered(np.full_like(limits, -LARGEST)), _ordered(np.full_like(limits, LARGEST))
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        left = passes(_floats(middle))
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(none, -np.inf, np.where(every, np.inf, _floats(low)))


def _last_narrow(limits: Floats) -> Floats:
    """Return the largest numbers that are at most `limits` once they are rounded to float32."""
    with np.errstate(over="ignore"):
        rounded = limits.astype(np.float32)
        below = np.where(rounded > limits, np.nextafter(rounded, np.float32(-np.inf)), rounded)
        above = np.nextafter(below, np.float32(np.inf))
        # what is beyond the largest float32 rounds as if 2^128 were the next one
        ends = [np.clip(end.astype(np.float64), -(2.0**128), 2.0**128) for end in (below, above)]
        middle = (ends[0] + ends[1]) / 2
        passes = middle.astype(np.float32) <= below  # a tie is rounded to the even one
    return np.where(below == np.inf, np.inf, np.where(passes, middle, np.nextafter(middle, -np.inf)))


def _ordered(values: Floats) -> NDArray[np.int64]:
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & _BITS)


def _floats(ordered: NDArray[np.int64]) -> Floats:
    return (ordered ^ ((ordered >> 63) & _BITS)).view(np.float64)
