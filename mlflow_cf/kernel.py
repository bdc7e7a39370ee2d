"""How loops are compiled: one decorator for all kernels, which keeps them for the next process where it can."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, ParamSpec, TypeVar

import numba

# Kernels allocate nothing: they write into arrays they are given. So numba need not count who holds an array, which
# takes half the time of a sweep, and most of that of bounds.
_njit: Final[Callable[..., Any]] = partial(numba.njit, nogil=True, _nrt=False, no_cfunc_wrapper=True)
P = ParamSpec("P")
R = TypeVar("R")
_logger = logging.getLogger(__name__)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call, without the interpreter's lock, and keep it beside its file.

    It must not make arrays, nor copy or add up whole ones; parts of arrays are fine.

    Where numba can write neither there, nor to a home, nor to NUMBA_CACHE_DIR, it is compiled anew in every process.
    """
    try:
        compiled: Callable[P, R] = _njit(cache=True)(function)
    except RuntimeError:  # numba's "no locator available": decorating compiles nothing yet, so nothing else can fail
        _say_that_nothing_is_kept()
        compiled = _njit()(function)
    return compiled


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` as part of each kernel that calls it; Python cannot."""
    compiled: Callable[P, R] = _njit(no_cpython_wrapper=True)(function)
    return compiled


@cache
def _say_that_nothing_is_kept() -> None:
    """Log it once, not once per kernel."""
    _logger.warning(
        "kernels are compiled anew in every process, which takes some ten seconds: neither the package's folder "
        "nor a home can be written to; name a folder that can in NUMBA_CACHE_DIR"
    )
