"""Fits of our own, which MLflow's ``mlflow.sklearn.autolog`` shall not take for trainings of the user's.

It would log each of them as a model of the active run, or of a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from mlflow.utils.autologging_utils import disable_autologging


@dataclass
class _Switch:
    """MLflow's switch for all autologging, which several threads may want off at the same time."""

    lock: Lock = field(default_factory=Lock)
    wanted_off: int = 0
    off: AbstractContextManager[None] | None = None


# MLflow has one switch for all threads, so there is one record of who has turned it.
_SWITCH: Final = _Switch()


def unlogged(fit: Callable[..., Any], *args: Any) -> Any:
    """Return what ``fit(*args)`` returns, and let nobody log what it fits.

    What other threads train at this very moment is not logged by ``mlflow.sklearn.autolog`` either: MLflow offers no
    narrower switch. So it is for single fits, which take milliseconds.
    """
    with _SWITCH.lock:
        if not _SWITCH.wanted_off:
            _SWITCH.off = disable_autologging()
            _SWITCH.off.__enter__()
        _SWITCH.wanted_off += 1
    try:
        return fit(*args)
    finally:
        with _SWITCH.lock:
            _SWITCH.wanted_off -= 1
            if not _SWITCH.wanted_off and _SWITCH.off is not None:
                _SWITCH.off.__exit__(None, None, None)
                _SWITCH.off = None
