"""The independent checker that the package ships, together with what the model decides."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlflow_cf.testing.checker import Checker as LawChecker
from mlflow_cf.testing.checker import Condition, Row, Ruler, absent, same, table_of

__all__ = ["Checker", "Condition", "Row", "Ruler", "absent", "one_row", "same"]


def one_row(background, row):
    """Return `row` as a table of one row in the background's dtypes; categories grow if the level is new."""
    return table_of([row], background)


@dataclass(frozen=True, init=False)
class Checker(LawChecker):
    """What a counterfactual is checked against: the constraints, and the `label` that `predict` must give it."""

    predict: Any
    label: Any

    def __init__(self, predict, background, constraints, label, *options, **named):
        super().__init__(background, constraints, *options, **named)
        object.__setattr__(self, "predict", predict)
        object.__setattr__(self, "label", label)

    def faults(self, query, row):
        found = super().faults(query, row)
        if list(row) != list(self.background.columns):
            return found
        predicted = np.asarray(self.predict(one_row(self.background, row)))[0]
        return found if predicted == self.label else [*found, f"predicted {predicted!r}"]
