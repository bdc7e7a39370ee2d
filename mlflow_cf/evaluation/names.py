"""What people call explainers, groups and features, and how they write shares and means: in pictures and notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mlflow_cf.explainers import EXPLAINERS
from mlflow_cf.reporting.groups import column_of
from mlflow_cf.words.sentences import cost

LONGEST: Final = 26  # characters of a name
FEW: Final = 8  # lines of a picture that have room for two lines of letters each
SMALL: Final = 0.005  # a share below it, or that far below 1, is not rounded away


def short(text: object, most: int = LONGEST) -> str:
    """Return a name on one line, cut if it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def group_name(group: str, columns: Iterable[str], most: int = 60) -> str:
    """Return what people call a group: ``personal status: male single``, and ``all rows``."""
    if not group:
        return "all rows"
    column = column_of(group, columns)
    label = group.removeprefix(f"{column}.")
    first = short(column.replace("_", " "), max(most // 2, most - len(label) - 2))
    return f"{first}: {short(label, most - len(first) - 2)}"


def group_lines(groups: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return what people call groups, on two lines where they are few and one is not enough."""
    if len(groups) > FEW:
        return [group_name(group, columns, LONGEST + LONGEST // 2) for group in groups]
    names = [group_name(group, columns, 2 * LONGEST) for group in groups]
    return [name if len(name) <= LONGEST else name.replace(": ", ":\n", 1) for name in names]


def explainer_name(name: str) -> str:
    """Return the name of an explainer as its class has it: ``GeCo``; the second one of a name is ``GeCo (2)``."""
    base, _, number = name.rpartition("_")
    if base in EXPLAINERS and number.isdigit():
        return f"{EXPLAINERS[base].__name__} ({number})"
    return EXPLAINERS[name].__name__ if name in EXPLAINERS else short(name)


def percent(share: float) -> str:
    """Return a share as ``94 %``; what is not quite nothing or all is not told as such."""
    if 0 < share < SMALL:
        return "under 1 %"
    if 1 - SMALL < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")


def number(value: float) -> str:
    """Return a mean or distance with two decimals, or with three digits where that says more."""
    return cost(value) if value >= 0 else f"-{cost(-value)}"
