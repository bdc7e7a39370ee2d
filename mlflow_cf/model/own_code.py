"""Which imported modules are the user's own: files that no installed distribution will bring to another machine."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

# Ours are a requirement of every artifact, wherever this installation has them.
_OURS: Final = frozenset({"mlflow_cf", "mlflow_cf_flavors", "__main__", "__mp_main__"})


def own_modules(names: Iterable[str] | None = None) -> dict[str, Path]:
    """Return the user's own modules among imported ones: top-level name -> its file, or the folder of a package.

    Args:
        names: dotted names of modules, or of what is in them, of which the first part counts; None: all imported ones.
    """
    wanted = {name.split(".")[0] for name in (list(sys.modules) if names is None else names)}
    found = {name: _place(name) for name in sorted(wanted - _OURS - sys.stdlib_module_names)}
    installed = _folders_of_distributions()
    return {name: at for name, at in found.items() if at is not None and not any(map(at.is_relative_to, installed))}


def names_in(code_paths: Iterable[str | Path]) -> set[str]:
    """Return the top-level modules and packages that these files and folders are."""
    return {
        path.stem if path.suffix == ".py" else path.name for path in (Path(given).resolve() for given in code_paths)
    }


def listed(places: Iterable[Path]) -> str:
    """Return ``code_paths=[..]`` with these places, as short as they can be written here."""
    here = Path.cwd()
    shown = [str(place.relative_to(here)) if place.is_relative_to(here) else str(place) for place in places]
    return f"code_paths={shown}"


def _place(name: str) -> Path | None:
    known = getattr(sys.modules.get(name), "__dict__", {})  # asked for an attribute, a lazy module would load itself
    where = next(iter(known.get("__path__") or ()), known.get("__file__"))
    return None if where is None else Path(where).resolve()


@cache
def _folders_of_distributions() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({Path(folder).resolve() for folder in [*named, *site.getsitepackages(), site.getusersitepackages()]})
