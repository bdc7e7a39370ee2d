"""The table outside, one float64 array inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features.codec import Raw, decode_column, encode_column, fits, plain, raw_array
from mlflow_cf.features.feature import Feature, Floats
from mlflow_cf.features.infer import infer_feature


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The model's raw input columns, in order."""

    features: tuple[Feature, ...]

    @classmethod
    def infer(cls, frame: pd.DataFrame, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> FeatureSpace:
        """Describe the columns of a background `frame` (n, d).

        Raises:
            InputError: no table, no rows or columns, duplicate names, or a column that cannot be described.
        """
        names = check_table(frame)
        overrides = overrides or {}
        for name in overrides:
            if name not in names:
                raise InputError(f"features.{name}", "not a column of data", did_you_mean(name, names, "columns"))
        return cls(tuple(infer_feature(name, frame[name], overrides.get(name, {})) for name in names))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def _columns(self) -> pd.Index[str]:
        return pd.Index(self.names)

    @cached_property
    def index(self) -> dict[str, int]:
        """Name -> column number."""
        return {name: column for column, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, name: str) -> Feature:
        return self.features[self.index[name]]

    def select(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return this space's columns of `frame`, in order; `frame` itself if it has no others.

        Raises:
            InputError: a column is missing or there twice.
        """
        if frame.columns.equals(self._columns):
            return frame
        twice = [name for name in frame.columns[frame.columns.duplicated()] if name in self.index]
        if twice:
            raise InputError(f"rows.{twice[0]}", "two columns have this name", "send one of them")
        for name in self.names:
            if name not in frame.columns:
                known = [str(column) for column in frame.columns if column not in self.index]
                raise InputError(f"rows.{name}", "column is missing", did_you_mean(name, known, "other columns"))
        return frame.loc[:, list(self.names)]

    def covering(self, frame: pd.DataFrame) -> FeatureSpace:
        """Return this space with codes for the levels of `frame` that the background never had."""
        found = {f.name: fits(f, frame[f.name]) for f in self.features if f.levels}
        if not any(found.values()):
            return self
        return FeatureSpace(tuple(f.with_unseen(found[f.name]) if found.get(f.name) else f for f in self.features))

    def encode_rows(self, frame: pd.DataFrame) -> tuple[Floats, dict[int, str]]:
        """Code the rows of `frame`; return (n, d) codes and, for rows that have none, position -> reason."""
        frame = self.select(frame)
        codes = np.empty((len(frame), len(self)))
        reasons: dict[int, str] = {}
        for column, feature in enumerate(self.features):
            codes[:, column], bad = encode_column(feature, raw_array(frame[feature.name]))
            for row in np.flatnonzero(bad).tolist():
                reasons.setdefault(row, f"{feature.name}: {_shown(frame[feature.name].iloc[row])} {_wanted(feature)}")
        return codes, reasons

    def encode(self, frame: pd.DataFrame) -> Floats:
        """Code `frame` (n, d); missing values become NaN.

        Raises:
            InputError: a missing column, or a value without a code.
        """
        codes, reasons = self.encode_rows(frame)
        for row, reason in reasons.items():
            raise InputError(f"rows[{row}].{reason.split(':')[0]}", reason.split(": ", 1)[1], "")
        return codes

    def decode(self, codes: NDArray[np.float64]) -> pd.DataFrame:
        """Return the raw rows behind `codes` (n, d), each column in the background's exact dtype."""
        return self._table([decode_column(feature, codes[:, column]) for column, feature in enumerate(self.features)])

    def decode_exactly(self, codes: NDArray[np.float64]) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        """Return the raw rows behind `codes` (n, d), and (n,) whether coding them again gives the same codes."""
        columns: list[Raw] = []
        again, bad = np.empty(codes.shape), np.zeros(codes.shape, dtype=np.bool_)
        for column, feature in enumerate(self.features):
            columns.append(decode_column(feature, codes[:, column]))
            again[:, column], bad[:, column] = encode_column(feature, columns[-1])
        same = (again == codes) | (np.isnan(again) & np.isnan(codes))
        return self._table(columns), (same & ~bad).all(axis=1)

    def _table(self, arrays: Sequence[Raw]) -> pd.DataFrame:
        """Return raw columns as a table."""
        columns: dict[int, Any] = {}
        for column, (feature, values) in enumerate(zip(self.features, arrays, strict=True)):
            if feature.dtype == "object":  # pandas would turn objects that are all strings into another type
                columns[column] = pd.Series(values, dtype=object, copy=False)
            else:
                columns[column] = values
        table = pd.DataFrame(columns, index=pd.RangeIndex(len(arrays[0])), copy=False)
        table.columns = self._columns.view()  # numbers first and names last: names would be made an index every time
        return table

    def values(self, row: Floats) -> dict[str, Any]:
        """Return one coded row (d,) as plain Python values by name; None for missing."""
        return {feature.name: feature.value(code) for feature, code in zip(self.features, row, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """Return the space as plain JSON values."""
        return {"features": [feature.to_dict() for feature in self.features]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FeatureSpace:
        """Rebuild a space from `to_dict`."""
        return cls(tuple(Feature.from_dict(item) for item in data["features"]))


def check_table(frame: object) -> list[str]:
    """Return the column names of a background that has rows, columns, and a name of its own for every column."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError("data", f"a {type(frame).__name__} is not a table", "pass a pandas DataFrame of raw features")
    if not len(frame) or not len(frame.columns):
        raise InputError("data", f"{len(frame)} rows and {len(frame.columns)} columns", "give at least two rows")
    names = [_name(column) for column in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"data.{twice[0]}", "two columns have this name", "rename one of them")
    return names


def _name(column: object) -> str:
    if not isinstance(column, str):
        raise InputError(f"data.{column}", "column names must be strings", "rename with frame.rename(columns=str)")
    return column


def _shown(value: object) -> str:
    return repr(plain(value))[:60]


def _wanted(feature: Feature) -> str:
    number = "finite whole number" if feature.stored.kind in "iu" else "finite number"
    return f"is no {feature.kind if feature.levels else number} of type {feature.dtype}"
