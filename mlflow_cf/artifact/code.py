"""Code of the user's own that a model needs: copied into its folder, where MLflow's loaders put it on ``sys.path``."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mlflow.models import Model

from mlflow_cf.errors import InputError
from mlflow_cf.model.own_code import own_modules

FOLDER: Final = "code"  # MLflow's name of it, and of the key by which a flavor in an MLmodel finds it
MOST_READ: Final = 1024**3  # bytes of a file in which names of modules are looked for
_PICKLES: Final = (".pkl", ".pickle", ".joblib", ".cloudpickle")
_START: Final = rb"(?:(?<![\w.])|(?<=\x8c[\x00-\xff]))"  # 0x8c is SHORT_BINUNICODE
_COMPILED: Final = ("__pycache__", "*.pyc", "*.pyo")

CodePaths = Sequence[str | Path]


def check(code_paths: CodePaths) -> None:
    """Refuse what is no list of files and folders, each with a name of its own.

    Raises:
        InputError: the first that does not fit, by its place in the list.
    """
    if isinstance(code_paths, str | Path):
        raise InputError("code_paths", f"must be a list, got {str(code_paths)!r}", f"write [{str(code_paths)!r}]")
    seen: set[str] = set()
    for place, path in enumerate(code_paths):
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
