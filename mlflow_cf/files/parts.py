"""A file that is written in parts: what is finished stays, and the whole gets its name at the very end."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from mlflow_cf.errors import InputError

SUFFIX: Final = ".parts"
DIGEST: Final = "of.sha256"
_TOLD: Final = b"mlflow_cf"  # the key of what a part says of itself
# Parts are in Arrow's own format: 20,000 answers are written in 2 to 6 ms, as parquet in 5 to 12, a quarter as large.
_PART: Final = ".arrow"
_OURS: Final = (_PART, ".parquet")  # of files in the folder of parts
_PACKED: Final = ipc.IpcWriteOptions(compression="lz4")


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
        return _folder_of(self.output)

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
            strange = [path.name for path in self.folder.iterdir() if path.name != DIGEST and path.suffix not in _OURS]
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
        told = lines.cast(self.schema).replace_schema_metadata({_TOLD: json.dumps(dict(statuses)).encode()})
        path = self._path(number)
        beside = path.with_name(f"{path.stem}.{os.getpid()}{_PART}")
        with self._writing(number), _unfinished(beside):
            with ipc.new_file(beside, told.schema, options=_PACKED) as writer:
                writer.write_table(told)
            _sync(beside)
            beside.replace(path)

    @contextmanager
    def whole(self, finished: int) -> Iterator[Callable[[pa.Table, Mapping[str, int]], None]]:
        """Write the file, one group of rows for each part: yield what takes the next part, with its rows by status.

        The first `finished` parts are taken up. At the end of the block the file gets its name, and all parts go.

        Raises:
            InputError: something cannot be written. There is no file then, or the one there was, and the parts stay.
        """
        count, beside = finished, self.folder / f"{self.output.name}.{os.getpid()}.parquet"

        def append(lines: pa.Table) -> None:
            with self._writing(count):
                writer.write_table(lines.cast(self.schema), row_group_size=max(lines.num_rows, 1))

        def add(lines: pa.Table, statuses: Mapping[str, int]) -> None:
            nonlocal count
            self.add(count, lines, statuses)
            count += 1
            append(lines)

        with _unfinished(beside):
            with self._writing(count):
                writer = pq.ParquetWriter(beside, self.schema)
            try:
                for number in range(finished):
                    append(self._read(number))
                yield add
            finally:
                with self._writing(count):
                    writer.close()
            with self._writing(count):
                _sync(beside)
                beside.replace(self.output)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06}{_PART}"

    def _read(self, number: int) -> pa.Table:
        """Return the lines of a finished part."""
        with ipc.open_file(self._path(number)) as part:
            return part.read_all()

    def _finished(self) -> Iterator[Counter[str]]:
        """Yield the rows by status of each part that can be read, up to the first that cannot."""
        number = 0
        while (path := self._path(number)).is_file():
            try:
                with ipc.open_file(path) as part:
                    told = part.schema.metadata[_TOLD]
            except (pa.ArrowException, OSError, KeyError, TypeError):
                return
            yield Counter(json.loads(told))
            number += 1

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


def finished_parts(output: Path) -> int:
    """Return how many parts of a file lie beside it, finished."""
    return sum(1 for _ in _folder_of(output).glob(f"part-??????{_PART}"))


def _folder_of(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


@contextmanager
def _unfinished(path: Path) -> Iterator[None]:
    """Remove what is written at `path` inside the block, unless it has got another name there."""
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have a file on the disk before it gets its name."""
    with path.open("rb+") as written:
        os.fsync(written.fileno())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as opened:
        opened.write(content)
        opened.flush()
        with suppress(OSError):
            os.fsync(opened.fileno())
