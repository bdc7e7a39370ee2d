"""A file that is written in parts: what is finished stays, and the whole gets its name at the very end."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from mlflow_cf.errors import InputError

SUFFIX: Final = ".parts"
DIGEST: Final = "of.sha256"
_TOLD: Final = b"mlflow_cf"  # the key of what a part says of itself


@dataclass(frozen=True)
class Parts:
    """The finished parts of a file, in a folder beside it.

    Parts of the same digest are taken up again; others are of another model, other rows or other options, and go.

    Attributes:
        output: the file that is to be.
        digest: of everything that the answers depend on.
        schema: of every part.
    """

    output: Path
    digest: str
    schema: pa.Schema

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self.output.with_name(self.output.name + SUFFIX)

    def begin(self) -> list[Counter[str]]:
        """Make the folder, or take up what is finished: for each part from the first on, its rows by status.

        Raises:
            InputError: the folder has other files, or cannot be made.
        """
        with self._writing(0):
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True)
            mark = self.folder / DIGEST
            if mark.is_file() and mark.read_text(encoding="utf-8") == self.digest:
                return list(self._finished())
            strange = [path.name for path in self.folder.iterdir() if path.name != DIGEST and path.suffix != ".parquet"]
            if strange or (not mark.is_file() and any(self.folder.iterdir())):
                raise InputError(str(self.folder), "has files that are not of this command", "move them away")
            for path in self.folder.iterdir():
                path.unlink()
            _write(mark, self.digest.encode())
        return []

    def add(self, number: int, lines: pa.Table, statuses: Mapping[str, int]) -> None:
        """Write the lines of a part, with how many rows of each status it has.

        Raises:
            InputError: it cannot be written. The parts before it stay.
        """
        told = self.schema.with_metadata({_TOLD: json.dumps(dict(statuses)).encode()})
        with self._writing(number):
            self._replace(self._path(number), told, [lines])

    def join(self, count: int) -> None:
        """Write all `count` parts into the file, one group of rows for each, and remove them.

        Raises:
            InputError: it cannot be written. There is no file then, or the one there was, and the parts stay.
        """
        with self._writing(count):
            tables = (pq.read_table(self._path(number)) for number in range(count))
            self._replace(self.output, self.schema, tables)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"

    def _finished(self) -> Iterator[Counter[str]]:
        """Yield the rows by status of each part that can be read, up to the first that cannot."""
        number = 0
        while (path := self._path(number)).is_file():
            try:
                told = pq.read_schema(path).metadata[_TOLD]
            except (pa.ArrowException, OSError, KeyError, TypeError):
                return
            yield Counter(json.loads(told))
            number += 1

    def _replace(self, path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
        """Write tables as one file, which has another name until it is whole."""
        beside = self.folder / f"{path.name}.{os.getpid()}.parquet"
        try:
            with pq.ParquetWriter(beside, schema) as writer:
                for table in tables:
                    writer.write_table(table.cast(schema), row_group_size=max(table.num_rows, 1))
            with beside.open("rb+") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, done: int) -> Iterator[None]:
        """Say what to do where something cannot be written."""
        try:
            yield
        except OSError as error:
            kept = f"{done:,} finished parts stay in {self.folder.name}; " if done else ""
            fact = f"cannot be written ({error.strerror or error})"
            fix = f"{kept}make room or choose another place, then run the same command again"
            raise InputError(str(self.output), fact, fix) from error


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as opened:
        opened.write(content)
        opened.flush()
        with suppress(OSError):
            os.fsync(opened.fileno())
