"""What an explainer has learned, as the bytes of two files: ``learned.npz`` for arrays, ``learned.json`` for the rest.

The archive holds uncompressed .npy files and nothing else, so its size bounds what it unpacks to; every header is
checked before any array is made. Neither file can hold code.
"""

from __future__ import annotations

import json
import math
import zipfile
from io import BytesIO
from typing import IO, Final

import numpy as np
from numpy.lib import format as npy

from mlflow_cf.artifact.format.plain import json_bytes
from mlflow_cf.explainers import Learned
from mlflow_cf.explainers.learned import KINDS, NAME

MOST_ARRAYS: Final = 256
SUFFIX: Final = ".npy"
# of an archive's member and of a header: not encrypted, no flag but the one for names in UTF-8
PLAIN_FLAGS: Final = (0, 0x800)
HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def arrays_to_bytes(learned: Learned) -> bytes:
    """Return the archive of all arrays; the same arrays give the same bytes."""
    file = BytesIO()
    np.savez(file, allow_pickle=False, **{name: learned.arrays[name] for name in sorted(learned.arrays)})
    return file.getvalue()


def plain_to_bytes(learned: Learned) -> bytes:
    """Return the JSON values, and the names of the arrays that belong to them."""
    return json_bytes({"arrays": sorted(learned.arrays), "plain": learned.plain})


def learned_from_bytes(archive: bytes, plain: bytes, most_cells: int) -> Learned:
    """Return what was learned, bit for bit.

    Args:
        archive, plain: the content of both files.
        most_cells: of all arrays together.

    Raises:
        ValueError, KeyError, TypeError, zipfile.BadZipFile: files that `arrays_to_bytes` and `plain_to_bytes` did not
            write, or too many cells.
    """
    content = json.loads(plain)
    names = content["arrays"]
    if set(content) != {"arrays", "plain"} or not all(NAME.fullmatch(name) for name in names):
        raise ValueError("other keys, or names that are none")
    with zipfile.ZipFile(BytesIO(archive)) as file:
        _check(file, names, most_cells)
    with np.load(BytesIO(archive), allow_pickle=False) as arrays:
        return Learned({name: arrays[name] for name in names}, content["plain"])


def _check(archive: zipfile.ZipFile, names: list[str], most_cells: int) -> None:
    """Refuse members that are not exactly these arrays, stored as they are."""
    members = archive.infolist()
    if len(members) > MOST_ARRAYS or sorted(member.filename for member in members) != sorted(n + SUFFIX for n in names):
        raise ValueError("other arrays than named")
    cells = 0
    for member in members:
        stored = member.compress_type == zipfile.ZIP_STORED and member.flag_bits in PLAIN_FLAGS
        if not stored or member.file_size != member.compress_size:
            raise ValueError("an array that is not stored as it is")
        with archive.open(member) as file:
            cells += _cells(file, member.file_size)
        if cells > most_cells:
            raise ValueError(f"more than {most_cells} cells")


def _cells(file: IO[bytes], size: int) -> int:
    """Return how many cells an array has whose header says no more and no less than the file of `size` bytes holds."""
    shape, _, dtype = HEADERS[npy.read_magic(file)](file)
    count = math.prod(shape)
    if dtype.kind not in KINDS or dtype.itemsize * count != size - file.tell():
        raise ValueError("an array of another type, or of another size than its file")
    return max(count, 1)
