"""How much is tried: little when tests run at every change, a lot with `HYPOTHESIS_PROFILE=ci`."""

from hypothesis import settings

from mlflow_cf.testing import FEW, SCENARIOS

SOME = SCENARIOS if settings.default.max_examples >= 500 else FEW  # of the suite's problems


def dear(times: int) -> settings:
    """Return the settings of a law whose examples cost so many times as much as others'."""
    return settings(max_examples=max(1, settings.default.max_examples // times))
