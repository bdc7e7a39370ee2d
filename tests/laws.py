"""How many examples a law gets: few when tests run at every change, many in CI (`HYPOTHESIS_PROFILE=ci`)."""

from hypothesis import settings


def dear(times: int) -> settings:
    """Return the settings of a law whose examples cost so many times as much as others'."""
    return settings(max_examples=max(1, settings.default.max_examples // times))
