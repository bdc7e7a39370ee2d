"""The measured lines of a table on disk: written part by part, read column by column, so that memory stays flat.

Also which group each row belongs to, by its values in one or more columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.measure.bins import Bins, Grouper, Values, quartile_grouper
from mlflow_cf.evaluation.measure.measured import TYPES, columns_of
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.reporting.groups import GROUP, order_of

ROWS_AT_ONCE: Final = 8_192  # of a file
ROW, LABEL, CORRECT, ABSOLUTE_ERROR = "row", "label", "correct", "absolute_error"
_ARROW: Final = {"str": pa.string(), "int64": pa.int64(), "float64": pa.float64()}


@dataclass(frozen=True, eq=False)
class Beside:
    """What is known of rows beside what is measured.

    Attributes:
        facts: (m, ..) by position: the row's own index as text, its group in each column asked for, and its label.
        labels: (m,) true targets, or None.
        regression: whether they are numbers to come near to.
    """

    facts: pd.DataFrame
    labels: np.ndarray[Any, Any] | None
    regression: bool

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        labels: np.ndarray[Any, Any] | None,
        groupers: Mapping[str, Grouper],
        model: ExplainedModel,
    ) -> Beside:
        """Collect it for `rows` (m, d), whose groups are told by `groupers`."""
        facts = grouped(rows, groupers).add_prefix(GROUP).reset_index(drop=True)
        facts.insert(0, ROW, pd.Series([str(label) for label in rows.index], dtype="str"))
        if labels is not None:
            facts[LABEL] = pd.Series([str(label) for label in labels], dtype="str")
        return cls(facts, labels, model.model.regression)

    def joined(self, part: pd.DataFrame) -> pd.DataFrame:
        """Return a part's lines, which are numbered by position, with the facts of their rows."""
        at = part.index.to_numpy()
        lines = pd.concat([self.facts.iloc[at], part], axis=1)
        if self.labels is None:
            return lines
        predicted, true = part["prediction"].tolist(), self.labels[at].tolist()
        if self.regression:
            errors = [np.nan if p is None else abs(p - t) for p, t in zip(predicted, true, strict=True)]
            return lines.assign(**{ABSOLUTE_ERROR: np.array(errors, dtype=np.float64)})
        return lines.assign(**{CORRECT: np.array([p == t for p, t in zip(predicted, true, strict=True)], np.float64)})

    @property
    def verdict(self) -> str | None:
        """The column that compares predictions with labels, if there are any."""
        if self.labels is None:
            return None
        return ABSOLUTE_ERROR if self.regression else CORRECT


def write(path: Path, parts: Iterable[pd.DataFrame], beside: Beside, model: ExplainedModel) -> None:
    """Write measured parts to the file `path` as they come; however they end, the file can be read."""
    schema = _schema(beside, model)
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for part in parts:
            lines = beside.joined(part)[schema.names]
            file.write_table(pa.Table.from_pandas(lines, schema=schema, preserve_index=False))


def size(path: Path) -> int:
    """Return how many lines a file has; 0 without one."""
    return int(pq.read_metadata(path).num_rows) if path.exists() else 0


def first(path: Path, most: int, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return so many lines of a file at first, or all there are, with some of its columns or all."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names if columns is None else list(columns)
        empty: pd.DataFrame = file.schema_arrow.empty_table().select(names).to_pandas()
        return next((batch.to_pandas() for batch in file.iter_batches(most, columns=names)), empty)[names]


def at(path: Path, places: NDArray[np.intp], columns: Sequence[str]) -> pd.DataFrame:
    """Return some of a file's lines, by their rising places, with some of its columns; the others are passed by."""
    found, start = list[pd.DataFrame](), 0
    with pq.ParquetFile(path) as file:
        empty: pd.DataFrame = file.schema_arrow.empty_table().select(list(columns)).to_pandas()
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
            low, high = np.searchsorted(places, [start, start + batch.num_rows])
            found.append(batch.take(pa.array(places[low:high] - start)).to_pandas())
            start += batch.num_rows
    return pd.concat(found, ignore_index=True)[list(columns)] if found else empty


def column(path: Path, name: str) -> Floats:
    """Return a column of numbers of a file (m,); NaN where it has none."""
    return np.asarray(pq.read_table(path, columns=[name])[name].to_numpy(), dtype=np.float64)


def _schema(beside: Beside, model: ExplainedModel) -> Any:
    """Return the columns and their types; known beforehand, for a part alone may have nothing but nulls in one."""
    special = {"prediction": _label_type(model), "changed": pa.list_(pa.string())}
    own = [(name, special.get(name) or _ARROW[TYPES.get(name, "str")]) for name in columns_of(model)]
    facts = [(str(name), pa.string()) for name in beside.facts.columns]
    return pa.schema([*facts, *own, *([(beside.verdict, pa.float64())] if beside.verdict else [])])


def _label_type(model: ExplainedModel) -> Any:
    if model.model.regression:
        return pa.float64()
    kinds = {type(label) for label in model.model.classes}
    known = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return known.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()


MOST_GROUPS: Final = 50  # of one column; more are not read by anybody
MISSING: Final = "missing"

GroupSource = str | Sequence[str] | Mapping[str, Sequence[float] | None]


def groups_of(rows: pd.DataFrame, groups: GroupSource | None) -> pd.DataFrame:
    """Return the group of each row as text, one column per column asked for, in rows' order; see `groupers_of`."""
    return grouped(rows, groupers_of(rows, groups))


def groupers_of(rows: pd.DataFrame, groups: GroupSource | None) -> dict[str, Grouper]:
    """Return what tells the group of each row, by the columns asked for.

    Args:
        rows: the table (m, d); columns that the model does not take are welcome.
        groups: a column, or several, whose values are groups, or the bins of `quartile_grouper` where it has many
            numbers or dates; or column -> edges of bins: ``{"age": [30, 50]}`` makes ``below 30``, ``30 to 50`` and
            ``50 or more``; with None in their place every value is a group.

    Raises:
        InputError: a column that is not there, or one with more than 50 values and no bins.
    """
    found: dict[str, Grouper] = {}
    for name, edges in asked_groups(groups).items():
        if name not in rows.columns:
            raise InputError(f"groups.{name}", "not a column of rows", did_you_mean(name, rows.columns, "columns"))
        column = rows[name]
        own = None if isinstance(groups, Mapping) else quartile_grouper(column)
        if own is None and edges is not None:
            own = edge_bins(name, edges, numbers=pd.api.types.is_numeric_dtype(column))
        if own is None:
            check_few(name, column.nunique())
        found[name] = own or Values()
    return found


def asked_groups(groups: GroupSource | None) -> Mapping[str, Sequence[float] | None]:
    """Return the columns by which groups are asked for, with the edges of their bins where they are given."""
    if isinstance(groups, Mapping):
        return groups
    return {} if groups is None else dict.fromkeys([groups] if isinstance(groups, str) else groups)


def grouped(rows: pd.DataFrame, groupers: Mapping[str, Grouper]) -> pd.DataFrame:
    """Return the group of each row as text, one column per grouper, in rows' order."""
    columns = {name: one.labels(rows[name]).mask(rows[name].isna(), MISSING) for name, one in groupers.items()}
    return pd.DataFrame(columns, index=rows.index, dtype="str")


def check_few(name: str, distinct: int) -> None:
    """Refuse a column with more values than anybody reads groups.

    Raises:
        InputError: it has so many `distinct` ones.
    """
    if distinct > MOST_GROUPS:
        fix = f"give the edges of bins: groups={{{name!r}: [low, high]}}"
        raise InputError(f"groups.{name}", f"{distinct:,} different values", fix)


def edge_bins(name: str, bins: Sequence[float], *, numbers: bool) -> Bins:
    """Return the bins between given edges of a column.

    Raises:
        InputError: no edges, or a column that does not have `numbers`.
    """
    edges = sorted(set(bins))
    if not edges or not numbers:
        raise InputError(f"groups.{name}", "bins need numbers, and at least one edge", f"groups={{{name!r}: [30, 50]}}")
    names = [f"below {edges[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(edges)), f"{edges[-1]:g} or more"]
    return Bins(tuple(map(float, edges)), tuple(names))


def members_of(groups: pd.DataFrame | None, rows: int) -> dict[str, Bools]:
    """Return which of so many rows are in each group, by column and label such as ``sex.F``; first all of them, ""."""
    members: dict[str, Bools] = {"": np.ones(rows, dtype=np.bool_)}
    for column, named in () if groups is None else groups.items():
        codes, known = pd.factorize(named)  # texts of every row would take more than all else
        labels = list(map(str, known))
        order = sorted(range(len(labels)), key=lambda code: order_of(labels[code]))
        members |= {f"{column}.{labels[code]}": codes == code for code in order}
    return members
