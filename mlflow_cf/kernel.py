"""How loops are compiled: one decorator for all kernels, which keeps them for the next process where it can."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import numba

# Kernels allocate nothing: they write into arrays they are given. So numba need not count who holds an array, which
# takes half the time of a sweep, and most of that of bounds.
_njit: Final[Callable[..., Any]] = partial(numba.njit, nogil=True, _nrt=False, no_cfunc_wrapper=True)
# What kernels are made of: functions, constants, and the tuples of arrays that they are given.
SOURCES: Final = (
    "kernel.py",
    "rounding.py",
    "constraints/programs.py",
    "engine/few_changes.py",
    "engine/larger_sets.py",
    "engine/nodes.py",
    "engine/listed.py",
    "engine/units/kernels.py",
    "engine/units/state.py",
    "engine/moves/bounds.py",
    "engine/moves/lines.py",
    "engine/moves/parting.py",
    *(f"engine/sets/{name}.py" for name in ("boxes", "branches", "kernels", "state")),
    *(f"evaluation/summary/{name}.py" for name in ("bits", "marking", "rectified")),
    "explainers/geco/neighbours.py",
    "metrics/nearest.py",
    "plans/kernels.py",
    "portfolio/kernels.py",
    "portfolio/list_kernels.py",
    "portfolio/pair_kernels.py",
    "portfolio/pair_room.py",
    "portfolio/set_kernels.py",
    "portfolio/set_notes.py",
    "portfolio/set_room.py",
    "portfolio/triple_sets.py",
    "portfolio/unit_kernels.py",
    "portfolio/unit_sets.py",
    "problem/single_features.py",
    "problem/distance.py",
    "engine/actions.py",
    "engine/thresholds.py",
    "problem/actions.py",
    "structures/trees/ascent.py",
    *(f"structures/kernels/{name}.py" for name in
      ("agreement", "agreement_parts", "agreement_state", "agreement_values", "blocks", "contributions", "costs",
       "dense", "gains", "growing", "heap", "leaf_masks", "needless", "own_paths", "pairs", "parting", "restrict",
       "sweeps", "trees", "triple_events", "triple_grid", "triples")),
)  # fmt: skip
_KERNELS: Final[list[Any]] = []
P = ParamSpec("P")
R = TypeVar("R")
_logger = logging.getLogger(__name__)


def digest_of(sources: Iterable[Path]) -> str:
    """Return a name for what files say."""
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]


_DIGEST: Final = digest_of(Path(__file__).parent / source for source in SOURCES)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call, without the interpreter's lock, and keep it beside its file.

    It must not make arrays, nor copy or add up whole ones; parts of arrays are fine.

    Where numba can write neither there, nor to a home, nor to NUMBA_CACHE_DIR, it is compiled anew in every process.
    """
    # Numba looks whether the kernel's own file has changed, not those of what it calls: after an upgrade in place it
    # would take the old code, or fail to load it. What it keeps is named after the function.
    function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
    try:
        compiled: Callable[P, R] = _njit(cache=True)(function)
    except RuntimeError:  # numba's "no locator available": decorating compiles nothing yet, so nothing else can fail
        _say_that_nothing_is_kept()
        compiled = _njit()(function)
    _KERNELS.append(compiled)
    return compiled


def ready() -> int:
    """Return how many kernels are compiled in this process, once for every kind of arrays they were given."""
    return sum(len(each.signatures) for each in _KERNELS)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` as part of each kernel that calls it; Python cannot.

    It is always inlined: numba hands over every array of a tuple in some seven parts, so that a call with a tuple of
    twenty arrays takes longer than what small functions do.
    """
    compiled: Callable[P, R] = _njit(no_cpython_wrapper=True, forceinline=True)(function)
    return compiled


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` like `inner`; its sums may be made in any order, and so several parts of them at once."""
    compiled: Callable[P, R] = _njit(no_cpython_wrapper=True, forceinline=True, fastmath={"reassoc", "nsz"})(function)
    return compiled


def called(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` once for a kernel that calls it in several places or seldom; Python cannot.

    A call with a tuple of many arrays takes some tenths of a microsecond; code that stands in a kernel several times
    takes seconds to compile.
    """
    compiled: Callable[P, R] = _njit(no_cpython_wrapper=True)(function)
    return compiled


@cache
def _say_that_nothing_is_kept() -> None:
    """Log it once, not once per kernel."""
    _logger.warning(
        "kernels are compiled anew in every process, which takes some ten seconds: neither the package's folder "
        "nor a home can be written to; name a folder that can in NUMBA_CACHE_DIR"
    )
