"""Warnings that one thread does not want to hear.

Python has one list of filters for all threads, and `warnings.catch_warnings` puts back the list that it found: of two
threads that use it at the same time, the one that ends last brings back the other's filters, for good. So a filter of
ours stays in the list, and is about warnings only while a thread asks for that, and only about its own.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class _Wishes(threading.local):
    """Categories of warnings that this thread does not want to hear now."""

    unheard: tuple[type[Warning], ...] = ()


_WISHES = _Wishes()


class _AsWished(type):
    """Answers ``issubclass(category, Unheard)``, by which Python looks for the filter of a warning."""

    def __subclasscheck__(cls, category: type) -> bool:
        return issubclass(category, _WISHES.unheard)


class Unheard(Warning, metaclass=_AsWished):
    """Every warning that the thread which warns does not want to hear."""


@contextmanager
def quietly(category: type[Warning] = Warning) -> Iterator[None]:
    """Show no warnings of a category in this thread, for the time of a `with` block."""
    before = _WISHES.unheard
    _WISHES.unheard = (*before, category)
    warnings.simplefilter("ignore", Unheard)
    try:
        yield
    finally:
        _WISHES.unheard = before
