"""Sums of lines that are on disk: read block by block, so that memory does not grow with the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow.parquet as pq

from mlflow_cf.evaluation.compare.summed import SummedVersions, compared_sums
from mlflow_cf.evaluation.measure.measured import PART
from mlflow_cf.evaluation.measure.moments import Tally
from mlflow_cf.evaluation.measure.panel import Block, Key, Measured, Panel
from mlflow_cf.reporting.groups import GROUP

UNREAD: Final = ("row", "text")  # columns that no sum is made of


def summed_lines(
    panel: Panel, paths: Mapping[Key, Path], rows: pd.DataFrame, groups: pd.DataFrame, part: int = PART
) -> SummedVersions:
    """Return the sums of lines that were written.

    Args:
        panel: whose lines they are.
        paths: the lines of each explainer, one for each of the rows from the first one on.
        rows: (m, c) numbered from 0; groups: (m, ..) the group of each.
        part: rows that are read together.
    """
    readers = {key: _parts(path, part) for key, path in paths.items()}
    tallies = (
        _block(panel, readers, rows.iloc[start : start + part], groups.iloc[start : start + part])
        for start in range(0, len(rows), part)
    )
    return SummedVersions(panel, reduce(Tally.merged, tallies))


def _block(
    panel: Panel, readers: Mapping[Key, Iterator[pd.DataFrame]], rows: pd.DataFrame, groups: pd.DataFrame
) -> Tally:
    """Return the sums of the next lines, which are those of some rows."""
    table = rows.reset_index(drop=True)
    lines = {}
    for key, reader in readers.items():
        own = next(reader, None)  # an explainer that was stopped has fewer lines
        if own is not None:
            lines[key] = own.reindex(table.index)
    block, measured = Block(lambda _: table, groups.reset_index(drop=True)), Measured(lines, {})
    members = panel.members(block.groups)
    return Tally(dict(panel.sums(measured, members)) | dict(compared_sums(panel, block, measured, members)), {})


def _parts(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yield lines in parts of so many, numbered from 0."""
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name not in UNREAD and not name.startswith(GROUP)]
        for batch in file.iter_batches(rows, columns=columns):
            yield batch.to_pandas()
