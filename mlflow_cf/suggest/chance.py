"""How unlikely it is that independent columns look as if a constraint held.

Every test takes the columns as independent, with the shares that they have, and bounds the probability of so few
exceptions from above. A suggestion must stay below its share of `FALSE_ALARMS`: each of the four kinds of relations
has a quarter of it, divided by the number of relations of that kind that were considered (Bonferroni).
"""

from __future__ import annotations

import math
from typing import Final

from scipy.special import bdtr

FALSE_ALARMS: Final = 0.01  # the probability that a table of independent columns gets any relation suggested, at most
KINDS_TESTED: Final = 4  # orders, dependencies, one-hot sets, implications
MOST_EXCEPTIONS: Final = 0.01  # of the rows that a suggestion is about; it is then written as a comment
MOST_OF_CHANCE: Final = 0.1  # exceptions, as a share of those that independent columns would have
LEAST_SUPPORT: Final = 30  # rows


def within_chance(log_probability: float, considered: int) -> bool:
    """Whether chance explains a relation: its log probability exceeds the share of one among `considered`."""
    return log_probability > math.log(FALSE_ALARMS / KINDS_TESTED / max(considered, 1))


def few(exceptions: int, rows: int, expected: float) -> bool:
    """Whether exceptions are few enough for a suggestion.

    Args:
        exceptions: rows against it.
        rows: rows that it is about.
        expected: exceptions that independent columns would have.
    """
    return rows >= LEAST_SUPPORT and exceptions <= MOST_EXCEPTIONS * rows and exceptions <= MOST_OF_CHANCE * expected


def log_tail(exceptions: int, rows: int, rate: float) -> float:
    """Return the log probability of at most `exceptions` among `rows` where each has the probability `rate`."""
    if rate <= 0:
        return 0.0
    if exceptions == 0:
        return -math.inf if rate >= 1 else rows * math.log1p(-rate)
    tail = float(bdtr(exceptions, rows, min(rate, 1.0)))
    return math.log(tail) if tail > 0 else -math.inf
