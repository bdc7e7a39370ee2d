"""NICE on the same model and rows: a row of the background that is favourable, and as much of it as it takes.

Brughmans, Leyman and Martens 2023. It is on the package index as NICEx, which asks for older releases of numpy and
pandas than it needs, so it is installed on its own: ``pip install --no-deps NICEx==0.2.3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case
from numpy.typing import NDArray
from rivals.turns import Reply, Row

try:
    from nice import NICE
except ImportError:
    NICE = None

LEFT_OUT = "NICE is left out; to have it beside the others: pip install --no-deps NICEx==0.2.3"
INSTALLED = NICE is not None


@dataclass(frozen=True, eq=False)
class Coding:
    """Tables as arrays of numbers, as NICE wants them.

    Attributes:
        dtypes: of all columns, in order.
        levels: of the columns that hold no numbers; an array has their positions.
    """

    dtypes: Mapping[str, Any]
    levels: Mapping[str, pd.Index[str]]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Coding:
        """Return the coding of a background (n, d)."""
        levels = {str(name): pd.Index(sorted(set(rows[name]))) for name in rows.select_dtypes(exclude="number")}
        return cls({str(name): dtype for name, dtype in rows.dtypes.items()}, levels)

    def encode(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return (m, d) numbers.

        Raises:
            ValueError: a level that the background has not.
        """
        columns = []
        for name in self.dtypes:
            column = rows[name]
            if name in self.levels:
                codes = self.levels[name].get_indexer(column)
                if (codes < 0).any():
                    raise ValueError(f"{name} has a level that the background has not")
                column = codes
            columns.append(np.asarray(column, dtype=np.float64))
        return np.column_stack(columns)

    def decode(self, X: NDArray[np.float64]) -> pd.DataFrame:
        """Return the table of numbers (m, d); numbers stay floats, which is all the same to a model."""
        columns = zip(self.dtypes, X.T, strict=True)
        return pd.DataFrame(
            {n: self.levels[n].take(values.astype(np.intp)) if n in self.levels else values for n, values in columns}
        )

    def row(self, x: NDArray[np.float64]) -> Row:
        """Return one row (d,) as values of the columns' own types."""
        return {
            name: self.levels[name][int(value)] if name in self.levels else dtype.type(value).item()
            for (name, dtype), value in zip(self.dtypes.items(), x, strict=True)
        }


@dataclass(frozen=True, eq=False)
class Nice:
    """NICE with its own settings (``optimization="sparsity"``); it takes no constraints, so it is told of none."""

    explainer: Any
    coding: Coding
    wanted: int

    @classmethod
    def build(cls, case: Case) -> Nice:
        """Prepare it for the model of `case`, which it asks for probabilities."""
        coding = Coding.of(case.background)
        explainer = NICE(
            predict_fn=lambda X: case.model.predict_proba(coding.decode(X)),
            X_train=coding.encode(case.background),
            cat_feat=[at for at, name in enumerate(coding.dtypes) if name in coding.levels],
            y_train=case.labels.to_numpy(),
        )
        return cls(explainer, coding, list(case.model.classes_).index(FAVOURABLE))

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Explain one row (1, d); what NICE refuses or fails to find has no counterfactual."""
        try:
            found = self.explainer.explain(self.coding.encode(row), target_class=[self.wanted])
        except ValueError as error:
            return Reply(None, str(error))
        return Reply(self.coding.row(found[0]))
