"""Files that a command writes: looked at before its work begins, and there as a whole or as they were."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlflow_cf.errors import InputError


def check_is_not(output: Path, rows: Path, where: str) -> None:
    """Refuse an output that is the file of the rows or lies in their folder, under whatever names.

    Raises:
        InputError: it is or does; `where` names the output to whom that is told, such as an option.
    """
    if rows.is_dir() and output.resolve().is_relative_to(rows.resolve()):
        raise InputError(where, f"{output} lies among the rows", "name a file elsewhere")
    if output.exists() and rows.exists() and output.samefile(rows):
        raise InputError(where, f"{output} is the file of the rows", "name another file")


def check_writable(output: Path, where: str) -> None:
    """Refuse a file that could not be written once the work is done.

    Raises:
        InputError: it is a folder, or there is no folder for it that can be written to.
    """
    if output.is_dir():
        raise InputError(where, f"{output} is a folder", "name a file in it")
    try:
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise _unwritable(output, where, error) from error


@contextmanager
def whole(output: Path, where: str) -> Iterator[Path]:
    """Yield where to write a file that gets its name at the end of the block; should anything fail, it is as it was.

    Raises:
        InputError: it cannot be written.
    """
    part = output.with_name(f".{secrets.token_hex(8)}.part")
    try:
        yield part
        part.replace(output)
    except OSError as error:
        raise _unwritable(output, where, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _unwritable(output: Path, where: str, error: OSError) -> InputError:
    fact = f"{output} cannot be written ({error.strerror or type(error).__name__})"
    return InputError(where, fact, "name a file in a folder that is there and that you may write to")
