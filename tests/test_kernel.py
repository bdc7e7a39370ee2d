"""Where compiled kernels go: beside their files, or nowhere, where neither these nor a home can be written."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from numba.extending import is_jitted

import mlflow_cf
import mlflow_cf_flavors
from mlflow_cf.engine import nodes as boxes
from mlflow_cf.kernel import SOURCES, digest_of

ASK = """
import logging
logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
import mlflow_cf
import numpy as np
from mlflow_cf.engine.nodes import LeastCosts, Lows, tighten_boxes
from mlflow_cf.problem.actions import ActionArrays, Within
whole, none = np.zeros(1, np.intp), np.zeros(1)
lows = Lows(np.empty(1), np.empty(1, np.intp), np.empty((1, 1), np.intp))
flat = ActionArrays(whole, none + 1, none, np.array([0, 1]), whole - 1, whole)
tighten_boxes(np.ones((1, 1), np.bool_), flat, Within(0.0, 2.0, 1), 2.0, LeastCosts.room(1), lows)
print(mlflow_cf.__file__, lows.distance[0])
"""


def without_a_place_to_write(folder: Path) -> dict[str, str]:
    """Copy our packages to `folder`, and return the environment of a process that has them and can cache nowhere.

    A file where a folder should be made stops root, too, whom modes do not.
    """
    for package in (mlflow_cf, mlflow_cf_flavors):
        copied = folder / package.__name__
        shutil.copytree(Path(package.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
        for place in [copied, *(path for path in copied.rglob("*") if path.is_dir())]:
            (place / "__pycache__").touch()
    caches = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "IPYTHONDIR")
    kept = {name: value for name, value in os.environ.items() if name not in caches}
    return {**kept, "HOME": os.devnull, "USERPROFILE": os.devnull, "PYTHONPATH": str(folder)}


def test_kernels_are_kept_where_they_can_be() -> None:
    assert boxes.tighten_boxes.stats.cache_path == str(Path(boxes.__file__).parent / "__pycache__")


def test_what_is_kept_is_named_by_all_that_kernels_are_made_of(tmp_path: Path) -> None:
    """Numba looks at the file of the kernel alone, and would take what was compiled before an upgrade in place."""
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("1")
    other.write_text("2")
    before = digest_of([one, other])
    assert digest_of([one, other]) == before
    other.write_text("3")
    assert digest_of([one, other]) != before
    package = Path(mlflow_cf.__file__).parent
    assert boxes.tighten_boxes.py_func.__qualname__ == f"tighten_boxes_{digest_of(package / file for file in SOURCES)}"


def test_all_that_kernels_are_made_of_is_known() -> None:
    """Modules with kernels, and those of the tuples they are given."""
    package = Path(mlflow_cf.__file__).parent
    known = {f"mlflow_cf.{source.removesuffix('.py').replace('/', '.')}" for source in SOURCES}
    names = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.rglob("*.py")]
    for module in map(importlib.import_module, (name for name in names if not name.endswith("__main__"))):
        for made in vars(module).values():
            if not is_jitted(made):
                continue
            assert made.py_func.__module__ in known
            for given in get_type_hints(made.py_func).values():
                if isinstance(given, type) and issubclass(given, tuple):
                    assert given.__module__ in known, given


@pytest.mark.system
def test_what_cannot_be_kept_is_compiled_anew(tmp_path: Path) -> None:
    environment = without_a_place_to_write(tmp_path / "site")
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.split() == [str(tmp_path / "site" / "mlflow_cf" / "__init__.py"), "1.0"]
    warned = [line for line in asked.stderr.splitlines() if "compiled anew" in line]
    assert len(warned) == 1
    assert warned[0].startswith("mlflow_cf.kernel WARNING")
    assert "NUMBA_CACHE_DIR" in warned[0]
