"""Estimators that are asked with arrays, though they were fitted on a table with names.

To go through the names and types of a table's columns takes an estimator longer than to answer ten rows: a logistic
model of 14 columns takes 390 microseconds for a table and 70 for an array, XGBoost 1,030 and 140.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from mlflow_cf_flavors.answers import Rows, as_array, shares

Estimator = Any  # scikit-learn carries no types

COMPARED: Final = 500  # rows on which both ways are compared
_LIBRARIES: Final = ("sklearn", "xgboost")  # LightGBM warns of arrays in place of tables
_ANSWERS: Final = ("predict", "predict_proba", "decision_function")


@dataclass(frozen=True)
class Numbers:
    """Rows -> the numbers in the columns that are selected, as an array."""

    select: Rows

    def __call__(self, rows: pd.DataFrame) -> NDArray[Any]:
        """Return the columns of rows (n, d)."""
        table = self.select(rows)
        found = as_array(table)
        return table.to_numpy(np.float64, na_value=np.nan) if found is None else found


def nameless(fitted: Estimator) -> Estimator:
    """Return a copy of an estimator that does not ask tables for the names of their columns."""
    found = copy(fitted)
    vars(found).pop("feature_names_in_", None)
    return found


def by_array(model: Estimator, select: Rows, rows: pd.DataFrame | None) -> tuple[Estimator, Rows]:
    """Return what answers as a fitted estimator does, and rows -> what it takes: numbers as an array, if it can.

    Args:
        model: the estimator; select: rows -> the table that it was fitted on.
        rows: some rows, on which both are compared to the last bit; None: nothing is compared, tables are taken.
    """
    if rows is None or type(model).__module__.split(".")[0] not in _LIBRARIES:
        return model, select
    table = select(rows.iloc[:COMPARED])
    if not isinstance(table, pd.DataFrame) or as_array(table) is None:
        return model, select
    found, numbers = nameless(model), Numbers(select)
    try:
        same = not _names_inside(vars(model)) and _same_answers(found, numbers(rows.iloc[:COMPARED]), model, table)
    except Exception:  # noqa: BLE001  of any estimator; whether it can answer at all is checked elsewhere
        return model, select
    return (found, numbers) if same else (model, select)


def _names_inside(held: object) -> bool:
    """Whether models in what a fitted estimator holds were fitted on names: these warn where an array has none."""
    if isinstance(held, Mapping):
        return any(map(_names_inside, held.values()))
    if isinstance(held, list | tuple):
        return any(map(_names_inside, held))
    part = hasattr(held, "get_params") or type(held).__module__.split(".")[0] in _LIBRARIES
    return part and hasattr(held, "__dict__") and (hasattr(held, "feature_names_in_") or _names_inside(vars(held)))


@dataclass(frozen=True, eq=False)
class OfBooster:
    """Table -> what an estimator of LightGBM says of it, asked through its Booster.

    To go through its settings takes the estimator three times as long as the Booster: of two rows .3 ms.

    Attributes:
        ask: the estimator's own call, for all but arrays of fractions: numbers of other types its Booster would round.
        booster: the Booster; classes: whether it answers shares.
    """

    ask: Callable[[Any], Any]
    booster: Any
    classes: bool

    def __call__(self, table: Any) -> Any:
        """Return the shares (n, classes), or the values (n,), of a table."""
        if not isinstance(table, np.ndarray) or table.dtype not in (np.float64, np.float32):
            return self.ask(table)
        answers = self.booster.predict(table, num_threads=1)
        return shares(answers) if self.classes and answers.ndim == 1 else answers


def by_booster(
    model: Estimator, ask: Callable[[Any], Any], select: Callable[[Any], Any], rows: pd.DataFrame | None
) -> Callable[[Any], Any]:
    """Return what answers as an estimator does, asked through its Booster; `ask` itself for all but LightGBM's own.

    Args:
        model: the estimator; ask: its `predict_proba`, or `predict`.
        select: rows -> what it takes.
        rows: some rows, on which both are compared to the last bit; None: nothing is compared.
    """
    if rows is None or not type(model).__module__.startswith("lightgbm."):
        return ask
    found = OfBooster(ask, model.booster_, hasattr(model, "classes_"))
    return found if agree(found, ask, select, rows) else ask


def agree(found: Callable[[Any], Any], own: Callable[[Any], Any], select: Callable[[Any], Any], rows: Any) -> bool:
    """Whether two ways to ask an estimator say the same of some rows, to the last bit; not, where one of them fails.

    Whether the estimator can answer these rows at all is checked elsewhere, and told as an error of the user's.
    """
    try:
        table = select(rows.iloc[:COMPARED])
        return np.array_equal(found(table), own(table))
    except Exception:  # noqa: BLE001  of any estimator
        return False


def is_plain(table: Any, columns: int) -> bool:
    """Whether a table of so many columns is an array or a sparse one of compressed rows, as models take it."""
    if sparse.issparse(table):
        if table.format != "csr" or {table.indices.dtype, table.indptr.dtype} != {np.dtype(np.intc)}:
            return False
    elif not isinstance(table, np.ndarray):
        return False
    return bool(table.shape[1:] == (columns,))


def _same_answers(one: Estimator, array: NDArray[Any], other: Estimator, table: pd.DataFrame) -> bool:
    names = [name for name in _ANSWERS if hasattr(other, name)]
    answers = [(np.asarray(getattr(one, name)(array)), np.asarray(getattr(other, name)(table))) for name in names]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in answers)
