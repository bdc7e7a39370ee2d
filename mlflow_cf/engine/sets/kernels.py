"""The kernel of the search among sets of changed features."""

from __future__ import annotations

from typing import Final

from mlflow_cf.engine.sets.boxes import gather_own, look_into_box, open_part
from mlflow_cf.engine.sets.branches import next_set, open_all
from mlflow_cf.engine.sets.state import DEPTH, PART, WAITING, WORK, Search
from mlflow_cf.kernel import kernel

DONE, GOING, FULL = range(3)
NO_PART: Final = 2**62  # that is left of a set
BEGINNING: Final = -1  # the part before any set is looked at


@kernel
def look(search: Search, most: int) -> int:
    """Look into sets and boxes until about so many leaves were looked at; return DONE, GOING or FULL."""
    counts = search.progress.counts
    stop = counts[WORK] + most
    while counts[WORK] < stop:
        if counts[WAITING]:
            if not look_into_box(search):
                return FULL
        elif counts[PART] == BEGINNING:
            counts[PART] = NO_PART
            if not open_all(search):
                return DONE
        elif counts[PART] >> counts[DEPTH] == 0:
            open_part(search)
        elif not next_set(search):
            return DONE
        elif not gather_own(search):
            counts[PART] = NO_PART
    return GOING
