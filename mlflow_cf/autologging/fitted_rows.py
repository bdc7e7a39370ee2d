"""The rows that a model was fitted on, where MLflow's autologging logs it in the middle of the call that fits it.

The arguments of that call are read from the frames of the running thread: nothing is patched, copied or kept, so
training takes no longer, and several threads cannot be mistaken for each other. How MLflow's functions are made decides
whether they are found: where they are not, rows are not known, and a warning asks for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import sparse

from mlflow_cf.backgrounds import Background
from mlflow_cf.features import Table

_PATCHES: Final = "mlflow."  # modules whose functions stand around a training call that autologging watches
_WITH_FEATURES: Final = ("X", "data")  # names of the argument with the rows, in libraries with estimators
_WITH_LABELS: Final = ("y", "label")


@dataclass(frozen=True, eq=False)
class FittedRows:
    """What a model was fitted on.

    Attributes:
        data: its rows (n, d).
        labels: (n,) its training target, if it is known.
        counted: the background of more rows that they are drawn from, if they are.
    """

    data: Table
    labels: np.ndarray[Any, Any] | None = None
    counted: Background | None = None


def rows_of_running_fit() -> FittedRows | None:
    """Return the rows of the innermost watched training call that this thread is in; None outside of one."""
    frame = inspect.currentframe()
    try:
        for args, kwargs in _watched_calls(frame):
            found = _of_estimator(args, kwargs) or _of_booster(args, kwargs)
            if found is not None:
                return found
    finally:
        del frame  # a frame that a variable of its own holds would keep all tables alive
    return None


def labels_of(values: object, rows: int) -> np.ndarray[Any, Any] | None:
    """Return a training target as (n,), or None if it is not one value per row."""
    if values is None:
        return None
    known = np.asarray(values)
    known = known.ravel() if known.shape == (rows, 1) else known
    return known if known.shape == (rows,) else None


def _watched_calls(frame: FrameType | None) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """Yield the positional and named arguments of MLflow's functions that take any, innermost first."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_PATCHES):
            args, kwargs = frame.f_locals.get("args"), frame.f_locals.get("kwargs")
            if isinstance(args, tuple) and isinstance(kwargs, dict):
                yield args, kwargs
        frame = frame.f_back


def _of_estimator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> FittedRows | None:
    """Return the rows of ``estimator.fit(X, y)``, called as ``fit(estimator, X, y)``."""
    if not args or not hasattr(args[0], "fit"):
        return None
    X, y = (_argument(args, kwargs, place, names) for place, names in ((1, _WITH_FEATURES), (2, _WITH_LABELS)))
    if isinstance(X, list):
        X = np.asarray(X)
    if not isinstance(X, pd.DataFrame | np.ndarray) or X.ndim != 2:
        return None
    return FittedRows(X, labels_of(y, len(X)))


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], place: int, names: Sequence[str]) -> Any:
    return args[place] if len(args) > place else next((kwargs[name] for name in names if name in kwargs), None)


def _of_booster(args: Sequence[Any], kwargs: Mapping[str, Any]) -> FittedRows | None:
    """Return the rows of ``train(params, data)``, if the data set of the library still has them."""
    for given in (*args, *kwargs.values()):
        if hasattr(given, "get_data") and hasattr(given, "get_label"):
            return _of_data_set(given)
    return None


def _of_data_set(data_set: Any) -> FittedRows | None:
    """Return the rows of an xgboost.DMatrix or a lightgbm.Dataset; None of one that keeps none, or codes alone.

    A DMatrix leaves missing values out. One with categories knows their codes alone, and so no model's raw input.
    """
    try:
        rows = data_set.get_data()
    except Exception:  # noqa: BLE001  a library's own error says that the rows are gone
        return None
    if sparse.issparse(rows):
        if "c" in (getattr(data_set, "feature_types", None) or ()):
            return None
        rows = _dense(rows.tocoo())
    if isinstance(rows, np.ndarray) and getattr(data_set, "feature_names", None):
        rows = pd.DataFrame(rows, columns=list(data_set.feature_names))
    if not isinstance(rows, pd.DataFrame | np.ndarray) or rows.ndim != 2:
        return None
    return FittedRows(rows, labels_of(data_set.get_label(), len(rows)))


def _dense(rows: Any) -> np.ndarray[Any, Any]:
    """Return a sparse table in which what is not there is missing."""
    table = np.full(rows.shape, np.nan)
    table[rows.row, rows.col] = rows.data
    return table
