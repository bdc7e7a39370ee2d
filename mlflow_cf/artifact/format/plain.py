"""Plain values in files that may be forged: bytes are bounded before they are parsed, and parsing runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from mlflow_cf.errors import ArtifactError

AGAIN: Final = "log the explained model again, or fetch its artifact again"
DEEPEST: Final = 32  # levels of nesting in YAML
MOST_NODES: Final = 20_000  # of a YAML file
LONGEST_NUMBER: Final = 400  # characters: more than any double has; the time to parse a number grows with their square
_OF_NUMBERS: Final = frozenset("0123456789abcdefxABCDEFX_:.+-")
# libyaml, where PyYAML has it, is ten times as fast; both construct nothing but plain values.
_Loader: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_bounded(root: Path, name: str, most: int) -> bytes:
    """Return the bytes of a file below `root`, at most `most` of them.

    Raises:
        ArtifactError: it is missing, a link, too large, or cannot be read.
    """
    path = root / name
    if path.parent.is_symlink() or path.is_symlink() or not path.is_file():
        raise ArtifactError(name, "is missing or not a file", AGAIN)
    with reading(name), path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise ArtifactError(name, f"is larger than {most:,} bytes", AGAIN)
    return raw


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn whatever a parser raises into one error that tells the file but nothing of its content."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(name, f"cannot be read ({type(error).__name__})", AGAIN) from error


def plain_yaml(raw: bytes, *, aliases: bool = False) -> Any:
    """Parse YAML of bounded size and depth.

    Args:
        raw: the content of a file.
        aliases: whether parts may be named and used again. Unfolded, a page of them is gigabytes: who allows them must
            not walk through what is returned without counting.

    Raises:
        ValueError, yaml.YAMLError: it is too deep or too large, or no plain YAML.
    """
    depth = nodes = 0
    for event in yaml.parse(raw, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > DEEPEST or nodes > MOST_NODES or (isinstance(event, yaml.AliasEvent) and not aliases):
            raise ValueError
        text = event.value if isinstance(event, yaml.ScalarEvent) and event.implicit[0] else ""
        if len(text) > LONGEST_NUMBER and _OF_NUMBERS.issuperset(text):
            raise ValueError
    loader = _Loader(raw)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def json_bytes(value: Any) -> bytes:
    """Return the JSON text of plain values as it stands in files."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1).encode()


def sha256_of(raw: bytes) -> str:
    """Return the digest of these bytes."""
    return hashlib.sha256(raw).hexdigest()
