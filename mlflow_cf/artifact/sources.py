"""Code inside an artifact: copied from the user's own, and run from its source alone.

It lies where MLflow's loaders put it on ``sys.path``. Python keeps what it compiles in ``__pycache__``, and runs what
it finds there without a look at the source if the file says so. A manifest cannot vouch for such files: they differ
from one Python to the next, and several servers load one folder.

Code of the user's own that a model needs: copied into its folder, where MLflow's loaders put it on ``sys.path``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from threading import Lock
from typing import Any, Final

from mlflow.models import Model

from mlflow_cf.errors import InputError
from mlflow_cf.model.own_code import own_modules


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


FOLDER: Final = "code"  # MLflow's name of it, and of the key by which a flavor in an MLmodel finds it
MOST_READ: Final = 1024**3  # bytes of a file in which names of modules are looked for
_PICKLES: Final = (".pkl", ".pickle", ".joblib", ".cloudpickle")
_START: Final = rb"(?:(?<![\w.])|(?<=\x8c[\x00-\xff]))"  # 0x8c is SHORT_BINUNICODE
_COMPILED: Final = ("__pycache__", "*.pyc", "*.pyo")

CodePaths = Sequence[str | Path]


def check(code_paths: CodePaths | None) -> None:
    """Refuse what is no list of files and folders, each with a name of its own; None is an empty one."""
    if isinstance(code_paths, str | Path):
        raise InputError("code_paths", f"must be a list, got {str(code_paths)!r}", f"write [{str(code_paths)!r}]")
    if code_paths is not None and not isinstance(code_paths, Sequence):
        raise InputError("code_paths", f"a {type(code_paths).__name__} is not a list", "pass a list of paths")
    seen: set[str] = set()
    for place, path in enumerate(code_paths or ()):
        where = f"code_paths[{place}]"
        if not isinstance(path, str | Path) or not Path(path).exists():
            fix = "pass the file of a module, or the folder of a package"
            raise InputError(where, f"there is no file or folder {str(path)!r}", fix)
        name = Path(path).resolve().name
        if name in seen:
            raise InputError(where, f"there is another {name!r} before it", "give each a name of its own")
        seen.add(name)


def add(code_paths: CodePaths, folder: Path) -> None:
    """Copy files and folders beside the MLflow model in `folder`, and name their place in its MLmodel.

    Raises:
        InputError: the model has brought a file or folder of the same name.
    """
    if not code_paths:
        return
    meta: Any = Model.load(str(folder))
    named = next((conf[FOLDER] for conf in meta.flavors.values() if conf.get(FOLDER)), FOLDER)
    place = folder / named
    place.mkdir(exist_ok=True)
    for number, path in enumerate(Path(path).resolve() for path in code_paths):
        if (place / path.name).exists():
            fix = "leave it out, or log the model without it"
            raise InputError(f"code_paths[{number}]", f"the model brings a {path.name!r} of its own", fix)
        if path.is_dir():
            shutil.copytree(path, place / path.name, ignore=shutil.ignore_patterns(*_COMPILED))
        else:
            shutil.copy(path, place)
    for conf in meta.flavors.values():
        conf[FOLDER] = conf.get(FOLDER) or named
    meta.save(str(folder / "MLmodel"))


def needed(root: Path) -> bool:
    """Return whether the model in the folder `root` brings code along, or names imported modules of the user's own.

    These are looked for in pickles, and in what skops wrote.
    """
    if any(root.rglob("*.py")):
        return True
    own = own_modules()
    if not own:
        return False
    # a text starts behind what is no part of a name, or in a pickle behind its length, which may look like one
    names = re.compile(_START + rb"(?:" + b"|".join(re.escape(name).encode() for name in own) + rb")(?!\w)")
    return any(names.search(text) for text in _written(root))


def forget(folder: Path) -> None:
    """Take `folder` and all below it out of ``sys.path``, where loading a model with code of its own has put them."""
    sys.path[:] = [entry for entry in sys.path if not Path(entry).is_relative_to(folder)]


def _written(root: Path) -> Iterator[bytes]:
    """Yield the bytes of pickles, and of the texts in which skops names types."""
    for path in root.rglob("*"):
        if not path.is_file() or path.stat().st_size > MOST_READ:
            continue
        if path.suffix in _PICKLES:
            yield path.read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                told = [item for item in packed.infolist() if Path(item.filename).suffix in (".json", *_PICKLES)]
                yield from (packed.read(item) for item in told if item.file_size <= MOST_READ)
