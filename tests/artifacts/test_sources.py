"""Code inside an artifact: run from its source, never from what Python compiled, and nothing is left beside it."""

import importlib.util
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
import small_loans

import mlflow_cf
from mlflow_cf.artifact import sources
from mlflow_cf.errors import ArtifactError, InputError

TABLE = small_loans.table()
PACKAGE = "rule_of_ours"
LOADER = """
class Rule:
    def predict(self, table, params=None):
        from {package}.late import SHARE  # imported when it answers, not when it is loaded
        return (table["income"] + 5 * table["owner"]) * SHARE
def _load_pyfunc(path):
    return Rule()
"""
LOAD = """
import sys, mlflow_cf
for _ in range(2):
    explained = mlflow_cf.load_model(sys.argv[1])
print(explained.predict(explained.background.head(2), {"counterfactual": {"explain": "none"}}).to_json())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a folder with a model that brings code of its own, `plain`, and the artifact made of it, `m`."""
    folder = tmp_path_factory.mktemp("built")
    code = folder / PACKAGE
    code.mkdir()
    (code / "__init__.py").write_text(LOADER.format(package=PACKAGE))
    (code / "late.py").write_text("SHARE = 1 / 110\n")
    mlflow.pyfunc.save_model(
        folder / "plain", loader_module=PACKAGE, code_paths=[str(code)], pip_requirements=["pandas"]
    )
    options = {"constraints": small_loans.CONSTRAINTS, "output": "score"}
    mlflow_cf.save_model(folder / "plain", folder / "m", TABLE, **options)
    return folder


@pytest.fixture
def saved(built, tmp_path):
    """Return an artifact whose model brings code of its own, some of which is imported late."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    yield tmp_path / "m"
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]  # the next test's copy has its own


def run(folder):
    done = subprocess.run([sys.executable, "-c", LOAD, str(folder)], capture_output=True, text=True, check=True)
    return done.stdout


def compiled(source: Path, text: str) -> None:
    """Write a compiled module for `source` that Python runs without a look at it."""
    other = source.parent.parent / "other.py"
    other.write_text(text)
    target = Path(importlib.util.cache_from_source(str(source)))
    py_compile.compile(str(other), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    other.unlink()


def test_loading_twice_from_one_folder_leaves_nothing_behind(saved):
    before = small_loans.files(saved)
    assert '"prediction"' in run(saved)
    assert small_loans.files(saved) == before


def test_the_switch_is_as_it_was(saved, monkeypatch):
    for before in (False, True):
        monkeypatch.setattr(sys, "dont_write_bytecode", before)
        with sources.no_bytecode(), sources.no_bytecode():
            assert sys.dont_write_bytecode is True
        assert sys.dont_write_bytecode is before
        mlflow_cf.load_model(saved)
        assert sys.dont_write_bytecode is before


def test_compiled_code_is_refused(saved):
    (late,) = saved.rglob("late.py")
    compiled(late, "raise SystemExit('ran')\n")
    with pytest.raises(ArtifactError, match=r"__pycache__: is compiled code, .*; delete it"):
        mlflow_cf.load_model(saved)


def test_compiled_code_that_comes_later_is_not_run(saved):
    sources.import_sources_only(saved)
    (late,) = saved.rglob("late.py")
    compiled(late, "raise SystemExit('ran')\n")
    sys.path.insert(0, str(late.parent.parent))
    try:
        assert importlib.import_module(f"{late.parent.name}.late").SHARE == 1 / 110
    finally:
        sys.path.remove(str(late.parent.parent))


def test_other_folders_are_left_alone(saved, tmp_path):
    sources.import_sources_only(saved)
    hooks = [hook for hook in sys.path_hooks if isinstance(hook, sources._SourcesBelow)]
    assert not any(hook.holds(str(tmp_path)) or hook.holds(f"{saved}er") for hook in hooks)
    sources.import_sources_only(saved)
    assert len([hook for hook in sys.path_hooks if isinstance(hook, sources._SourcesBelow)]) == len(hooks)


def test_a_model_with_compiled_code_is_not_logged(saved, tmp_path):
    (tmp_path / "plain" / "code" / "hidden.pyc").write_bytes(b"")
    with pytest.raises(InputError, match=r"model/code/hidden\.pyc is compiled code"):
        mlflow_cf.save_model(tmp_path / "plain", tmp_path / "again", TABLE, output="score")
    assert not (tmp_path / "again").exists()
