"""A reader of Universal Binary JSON as XGBoost writes it: arrays of numbers become numpy arrays without a loop."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_NUMBERS: Final = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_CONSTANTS: Final = {"Z": None, "T": True, "F": False}


def read_ubjson(data: bytes) -> Any:
    """Return the value that `data` holds: dicts, lists, numpy arrays, strings and numbers.

    Raises:
        ValueError: a type that is not known here.
    """
    return _Reader(memoryview(data)).value()


@dataclass
class _Reader:
    data: memoryview
    at: int = 0

    def value(self) -> Any:
        kind = self._char()
        if kind == "{":
            return self._object()
        if kind == "[":
            return self._array()
        if kind == "S":
            return self._text()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        return self._numbers(kind, 1)[0].item()

    def _object(self) -> dict[str, Any]:
        found = {}
        while not self._skip("}"):
            key = self._text()
            found[key] = self.value()
        return found

    def _array(self) -> Any:
        kind = self._char() if self._skip("$") else ""
        count = self._count() if self._skip("#") else -1
        if kind:
            return self._numbers(kind, count)
        found: list[Any] = []
        while not self._skip("]") if count < 0 else len(found) < count:
            found.append(self.value())
        return found

    def _text(self) -> str:
        return self._take(self._count()).tobytes().decode()

    def _count(self) -> int:
        return int(self._numbers(self._char(), 1)[0])

    def _numbers(self, kind: str, count: int) -> Any:
        if kind not in _NUMBERS:
            raise ValueError(f"unknown type {kind!r}")
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))

    def _char(self) -> str:
        (code,) = struct.unpack("c", self._take(1))
        return str(code, "ascii")

    def _skip(self, char: str) -> bool:
        """Whether the next character is `char`; if so, go on behind it."""
        found = bool(self.data[self.at] == ord(char))
        self.at += found
        return found

    def _take(self, size: int) -> memoryview:
        self.at += size
        return self.data[self.at - size : self.at]
