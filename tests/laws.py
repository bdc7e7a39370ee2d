"""How much is tried: little when tests run at every change, a lot with `HYPOTHESIS_PROFILE=ci`."""

from hypothesis import settings

from mlflow_cf.testing import FEW, KINDS, SCENARIOS

THOROUGH = settings.default.max_examples >= 500
BOUNDED = 2_000  # examples of a law of bounds when the run is thorough
SOME = SCENARIOS if THOROUGH else FEW  # of the suite's problems


def kinds(*some: str) -> tuple[str, ...]:
    """Return kinds of models for the dearest tests of a suite: these, or all when the run is thorough."""
    return tuple(KINDS) if THOROUGH else some


def many(usual: int, thorough: int) -> int:
    """Return of how many seeds, rows or sizes a test tries: the usual number, or more when the run is thorough."""
    return thorough if THOROUGH else usual


def dear(times: int) -> settings:
    """Return the settings of a law whose examples cost so many times as much as others'."""
    return settings(max_examples=max(1, settings.default.max_examples // times))


def bounding() -> settings:
    """Return the settings of a law of bounds: what is proved by a bound hangs on every one of them."""
    return settings(max_examples=BOUNDED if THOROUGH else settings.default.max_examples)
