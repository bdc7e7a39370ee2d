"""By which columns lines are split: groups of a reference with a table of its own are those of the windows, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.measure.bins import LONG, Grouper
from mlflow_cf.evaluation.measure.lines import GroupSource, asked_groups, check_few, grouped, groupers_of


@dataclass(frozen=True, eq=False)
class Grouped:
    """Lines in groups.

    Attributes:
        labels: (m, g) the group of every line as text.
        groupers: what tells it, by column.
    """

    labels: pd.DataFrame
    groupers: Mapping[str, Grouper]


@dataclass(frozen=True, eq=False)
class Grouping:
    """How lines are to be split.

    Attributes:
        asked: by which columns.
        groupers: what tells the groups of the reference, by column; None: the table that is read says where bins begin.
    """

    asked: GroupSource | None
    groupers: Mapping[str, Grouper] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are asked for."""
        return tuple(asked_groups(self.asked))

    def of(self, rows: pd.DataFrame) -> Grouped:
        """Return lines (m, ..) in groups.

        Raises:
            InputError: a column that is not there, has too many values, or is of another kind in the reference.
        """
        own = {name: _whole(rows[name]) if name in self.columns else rows[name] for name in rows}
        rows = pd.DataFrame(own, index=rows.index)
        if self.groupers is None:
            groupers = groupers_of(rows, self.asked)
            return Grouped(grouped(rows, groupers), groupers)
        labels = [self._labels(rows, name, one) for name, one in self.groupers.items()]
        return Grouped(pd.concat([pd.DataFrame(index=rows.index), *labels], axis=1), self.groupers)

    def _labels(self, rows: pd.DataFrame, name: str, grouper: Grouper) -> pd.DataFrame:
        """Return the groups (m, 1) that the reference has made of a column."""
        if name not in rows:
            raise InputError(f"groups.{name}", "not a column of rows", did_you_mean(name, rows.columns, "columns"))
        try:
            labels = grouped(rows, {name: grouper})
        except (ValueError, TypeError, AttributeError) as error:
            fact = f"of another kind than in the reference ({rows[name].dtype})"
            raise InputError(f"groups.{name}", fact, "store it alike in both") from error
        check_few(name, labels.loc[rows[name].notna(), name].nunique())
        return labels


def _whole(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return whole numbers as such: pandas makes floats of them where some are missing, which would be other groups."""
    if not pd.api.types.is_float_dtype(column):
        return column
    known = column.dropna()
    whole = (known.abs() < LONG).all() and (known == np.floor(known)).all()
    return column.astype("Int64") if whole else column
