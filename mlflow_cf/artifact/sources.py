"""Code inside an artifact runs from its source alone, and leaves nothing beside it.

Python keeps what it compiles in ``__pycache__``, and runs what it finds there without a look at the source if the file
says so. A manifest cannot vouch for such files: they differ from one Python to the next, and several servers load one
folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from threading import Lock
from typing import Any, Final


class _Source(SourceFileLoader):
    """Loads modules from their source; nothing compiled is read or written."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Say that there are no facts of a file, which is how `importlib` is told not to keep what it compiles."""
        raise OSError(path)


@dataclass(frozen=True)
class _SourcesBelow:
    """A hook of Python's search for modules: in and below `folder`, an absolute path, only sources are found."""

    folder: str

    def __call__(self, path: str) -> FileFinder:
        if not self.holds(path) or not Path(path).is_dir():
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES))

    def holds(self, path: str) -> bool:
        """Return whether `path` is `folder` or below it."""
        return os.path.realpath(path).startswith(self.folder + os.sep)


@dataclass
class _Switch:
    """Python's own switch for writing compiled modules, which several threads may want off at the same time."""

    lock: Lock = field(default_factory=Lock)
    wanted_off: int = 0
    before: bool = False


# Python has one switch for all threads, so there is one record of who has turned it.
_SWITCH: Final = _Switch()


@contextmanager
def no_bytecode() -> Iterator[None]:
    """Keep Python from writing compiled modules anywhere; as it was afterwards."""
    with _SWITCH.lock:
        if not _SWITCH.wanted_off:
            _SWITCH.before = sys.dont_write_bytecode
        _SWITCH.wanted_off += 1
        sys.dont_write_bytecode = True
    try:
        yield
    finally:
        with _SWITCH.lock:
            _SWITCH.wanted_off -= 1
            if not _SWITCH.wanted_off:
                sys.dont_write_bytecode = _SWITCH.before


def import_sources_only(folder: Path) -> None:
    """Let modules in `folder` be imported from their sources alone, also when a model imports them as it answers.

    It holds as long as Python runs, like MLflow's own entry of that folder in ``sys.path``.
    """
    hook = _SourcesBelow(os.path.realpath(folder))
    if hook in sys.path_hooks:
        return
    gone = [known for known in sys.path_hooks if isinstance(known, _SourcesBelow) and not Path(known.folder).is_dir()]
    sys.path_hooks[:] = [hook, *(known for known in sys.path_hooks if known not in gone)]
    for path in [path for path in sys.path_importer_cache if hook.holds(path)]:
        sys.path_importer_cache.pop(path, None)
