"""Groups of rows, such as ``sex.Female``: their columns, their order, and how people call them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

GROUP: Final = "group."  # before the name of a column by which rows are grouped


def column_of(group: str, columns: Iterable[str]) -> str:
    """Return the column of a group such as ``sex.Female``; of columns that begin alike the longest."""
    return max((name for name in columns if group.startswith(f"{name}.")), key=len, default=group.partition(".")[0])


def spoken_group(group: str, columns: Iterable[str]) -> str:
    """Return a group such as ``personal_status.male single`` as ``personal status: male single``."""
    column = column_of(group, columns)
    return f"{column.replace('_', ' ')}: {group.removeprefix(f'{column}.')}"


def groups_of(line: Mapping[Any, Any], columns: Iterable[str]) -> Iterator[str]:
    """Yield the groups of a row as they are told."""
    for column in columns:
        yield f"{column.replace('_', ' ')}: {line[GROUP + column]}"


def order_of(label: str) -> tuple[float, bool, str]:
    """Return the place of a group's label among others: by the number it begins with, else behind those and by text."""
    match = _BEGINS.match(label)
    return (float(match["number"]) if match else np.inf, not label.startswith("below "), label)


_BEGINS: Final = re.compile(r"(?:below )?(?P<number>-?\d+(?:\.\d+)?(?:e-?\d+)?)")
