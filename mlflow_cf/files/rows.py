"""Rows of parquet files, block by block: one file, or a folder of them as Spark writes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace
from mlflow_cf.parquet import footer, parquet_files

# Of a block: its explanations hold some tens of megabytes. With half as many, XGBoost on Adult takes 10 % longer on one
# core, and 13 % on two.
ROWS_A_BLOCK: Final = 20_000


@dataclass(frozen=True)
class Block:
    """Some rows of one file.

    Attributes:
        number: of the block in all files, from 0.
        file: where its rows lie.
        first: the place of its first row in that file; start: the same in all files together.
        rows: how many there are.
    """

    number: int
    file: Path
    first: int
    start: int
    rows: int


@dataclass(frozen=True)
class RowFiles:
    """Parquet files whose rows are read in blocks, in the order of the files' names.

    Attributes:
        files: the files; each is read by itself, so that their types may differ.
        columns: names of the columns that are read.
        key: the column among them that tells rows apart, if there is one.
        block_rows: most rows of a block.
    """

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    key: str | None = None
    block_rows: int = ROWS_A_BLOCK

    @classmethod
    def of(cls, path: Path, space: FeatureSpace, key: str | None, block_rows: int = ROWS_A_BLOCK) -> RowFiles:
        """Look at the footers of a file, or of all files of a folder: every one must have the columns that are needed.

        Raises:
            InputError: no parquet files, no rows, a column that some file lacks, or a key that is missing or null.
        """
        files = parquet_files(path)
        columns = tuple(dict.fromkeys([*space.names, *([] if key is None else [key])]))
        for file in files:
            names = footer(file).schema.to_arrow_schema().names
            for column in columns:
                if column not in names:
                    raise InputError(f"{file.name}.{column}", "column is missing", did_you_mean(column, names))
        found = cls(files, columns, key, block_rows)
        if not found.total:
            raise InputError(path.name, "has no rows", "pass at least one")
        found._check_key()
        return found

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks in order; each has rows of one file."""
        blocks: list[Block] = []
        start = 0
        for file in self.files:
            rows = footer(file).num_rows
            for first in range(0, rows, self.block_rows):
                size = min(self.block_rows, rows - first)
                blocks.append(Block(len(blocks), file, first, start + first, size))
            start += rows
        return tuple(blocks)

    @property
    def total(self) -> int:
        """How many rows there are in all files."""
        return sum(block.rows for block in self.blocks)

    @property
    def sha256(self) -> str:
        """The digest of the bytes of all files, in order."""
        digest = hashlib.sha256()
        for file in self.files:
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()

    def read(self, done: int) -> Iterator[tuple[Block, pd.DataFrame, pa.ChunkedArray | None]]:
        """Yield the blocks after the first `done` ones: their rows, numbered from 0, and their keys, if there are."""
        for file in self.files:
            blocks = [block for block in self.blocks if block.file == file and block.number >= done]
            if not blocks:
                continue
            tables = _tables(file, self.columns, blocks[0].first)
            for block, table in zip(blocks, _cut(tables, [block.rows for block in blocks]), strict=True):
                key = None if self.key is None else table[self.key]
                yield block, table.to_pandas().reset_index(drop=True), key

    def _check_key(self) -> None:
        """Refuse a key of several types, or without a value: the answer could not be told from others."""
        if self.key is None:
            return
        kinds = [pq.read_schema(file).field(self.key).type for file in self.files]
        for file, kind in zip(self.files, kinds, strict=True):
            if kind != kinds[0]:
                fact = f"is {kind} here, and {kinds[0]} in {self.files[0].name}"
                raise InputError(f"{file.name}.{self.key}", fact, "write all files with the same type")
        for file in self.files:
            place = 0
            for batch in pq.ParquetFile(file).iter_batches(self.block_rows, columns=[self.key]):
                missing = pc.is_null(batch.column(0), nan_is_null=True)
                if pc.any(missing).as_py():
                    row = place + pc.index(missing, value=True).as_py()
                    fix = "fill it in, or leave the key out: rows are numbered in any case"
                    raise InputError(f"{file.name}.{self.key}", f"row {row:,} has no key", fix)
                place += batch.num_rows


def _tables(file: Path, columns: Sequence[str], first: int) -> Iterator[pa.Table]:
    """Yield the rows of a file from place `first` on, in pieces as they come."""
    opened = pq.ParquetFile(file)
    groups = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
    before = 0
    while groups and first - before >= groups[0]:
        before += groups.pop(0)
    left = range(opened.num_row_groups - len(groups), opened.num_row_groups)
    skip = first - before
    for batch in opened.iter_batches(ROWS_A_BLOCK, row_groups=left, columns=list(columns)):
        if skip < batch.num_rows:
            yield pa.Table.from_batches([batch.slice(skip)])
        skip = max(skip - batch.num_rows, 0)


def _cut(tables: Iterator[pa.Table], sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Yield the rows of pieces as tables of these sizes."""
    kept: list[pa.Table] = []
    for size in sizes:
        while sum(table.num_rows for table in kept) < size:
            kept.append(next(tables))
        joined = pa.concat_tables(kept)
        yield joined.slice(0, size)
        kept = [joined.slice(size)]
