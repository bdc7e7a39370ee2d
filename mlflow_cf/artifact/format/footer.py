"""What the footer of a parquet file says of its size, read without pyarrow, where a forged one can end the process.

A footer is a struct in Thrift's compact protocol. Nothing of it is unpacked but numbers, and the time is linear in its
bytes. https://github.com/apache/parquet-format (parquet.thrift), https://github.com/apache/thrift (compact protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"PAR1"
CODECS: Final = ("UNCOMPRESSED", "SNAPPY")  # by their numbers; no others are ever used here
DEEPEST: Final = 12  # structs and lists within one another; those of parquet have half as many
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_NUMBERS: Final = (4, 5, 6)  # of 16, 32 and 64 bits
# Numbers of fields in parquet.thrift.
_FILE_ROWS, _FILE_GROUPS, _GROUP_COLUMNS, _GROUP_ROWS, _CHUNK_META, _META_CODEC, _META_VALUES = 3, 4, 1, 3, 3, 4, 5

Struct = Mapping[int, Any]


@dataclass(frozen=True)
class RowGroup:
    """A group of rows: how many, and of each column its compression and how many values it has."""

    rows: int
    codecs: tuple[str, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Footer:
    """What a parquet file says it holds."""

    rows: int
    groups: tuple[RowGroup, ...]


def footer(raw: bytes, most_bytes: int) -> Footer:
    """Return what the footer of this parquet file says.

    Raises:
        ValueError, IndexError, KeyError, TypeError, AttributeError: it is no footer, or one of more than `most_bytes`.
    """
    size = int.from_bytes(raw[-8:-4], "little")
    if raw[:4] != MAGIC or raw[-4:] != MAGIC or not 0 < size <= min(most_bytes, len(raw) - 12):
        raise ValueError("no parquet file, or a footer that is too large")
    fields = _Reader(raw[-8 - size : -8]).struct(0)
    return Footer(fields[_FILE_ROWS], tuple(_group(group) for group in fields[_FILE_GROUPS]))


def _group(fields: Struct) -> RowGroup:
    metas = [column[_CHUNK_META] for column in fields[_GROUP_COLUMNS]]
    codecs = tuple(CODECS[meta[_META_CODEC]] if meta[_META_CODEC] >= 0 else "" for meta in metas)
    return RowGroup(fields[_GROUP_ROWS], codecs, tuple(meta[_META_VALUES] for meta in metas))


class _Reader:
    """A place in the bytes of a struct; whatever would lead beyond their end is an IndexError."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def struct(self, depth: int) -> Struct:
        if depth > DEEPEST:
            raise ValueError("too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = self._value(head & 15, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _NUMBERS:
            return self._number()
        read: dict[int, Callable[[], Any]] = {
            _BYTE: self._byte,
            _DOUBLE: lambda: self._skip(8),
            _BINARY: lambda: self._skip(self._varint()),
            _LIST: lambda: self._list(depth),
            _SET: lambda: self._list(depth),
            _STRUCT: lambda: self.struct(depth),
        }
        return read[kind]()

    def _list(self, depth: int) -> list[Any]:
        if depth > DEEPEST:
            raise ValueError("too deep")
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        if size > len(self._raw) - self._at:
            raise IndexError("more elements than bytes")
        if kind in (_TRUE, _FALSE):
            return [self._byte() for _ in range(size)]
        return [self._value(kind, depth + 1) for _ in range(size)]

    def _skip(self, size: int) -> None:
        if size > len(self._raw) - self._at:
            raise IndexError("more bytes than there are")
        self._at += size

    def _byte(self) -> int:
        self._at += 1
        return self._raw[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
