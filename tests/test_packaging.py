"""The distribution: its metadata, its public names, what importing it loads, what its code never does."""

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import mlflow_cf
import mlflow_cf_flavors

PACKAGES = (Path(mlflow_cf.__file__).parent, Path(mlflow_cf_flavors.__file__).parent)
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]

FRAMEWORKS = ("xgboost", "lightgbm", "catboost", "torch", "tensorflow", "onnx", "onnxruntime", "pyspark")
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "joblib", "cloudpickle", "dill", "marshal", "shelve"}
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__"}
UNSAFE_CALLS = {
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "full_load"),
    ("yaml", "full_load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "unsafe_load_all"),
    ("pd", "eval"),
    ("pandas", "eval"),
    ("pd", "read_pickle"),
    ("pandas", "read_pickle"),
}


def unsafe(tree: ast.AST) -> Iterator[str]:
    """Yield what in the code could run text or bytes as code."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names if name.name.split(".")[0] in UNSAFE_MODULES]
            case ast.ImportFrom(module=str(module), level=0):
                imported = {(module, name.name) for name in node.names}
                found = [f"{a}.{b}" for a, b in imported if a.split(".")[0] in UNSAFE_MODULES or (a, b) in UNSAFE_CALLS]
            case ast.Call(func=ast.Name(id=name)):
                found = [name] if name in UNSAFE_NAMES else []
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attribute)) if (
                module,
                attribute,
            ) in UNSAFE_CALLS:
                found = [f"{module}.{attribute}"]
            # A table's own eval takes text; a torch module's takes nothing.
            case ast.Call(func=ast.Attribute(attr="eval"), args=[_, *_]):
                found = [".eval(text)"]
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                found = ["allow_pickle=True"]
            case _:
                continue
        yield from (f"line {getattr(node, 'lineno', '?')}: {what}" for what in found)


def test_metadata() -> None:
    about = metadata("mlflow-cf")
    assert about["Name"] == "mlflow-cf"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert {"xgboost", "lightgbm", "benchmark", "dev"} == set(
        about.get_all("Provides-Extra")
    )  # no extra without code behind it


def test_version_is_the_distributions() -> None:
    assert mlflow_cf.__version__ == version("mlflow-cf")


def test_public_names_exist() -> None:
    assert {"wrap", "save_model", "log_model", "load_model"} <= set(mlflow_cf.__all__)
    for name in mlflow_cf.__all__:
        assert getattr(mlflow_cf, name) is not None


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_every_module_imports(path: Path) -> None:
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    parts = path.relative_to(package.parent).with_suffix("").parts
    importlib.import_module(".".join(parts).removesuffix(".__init__"))


def test_types_are_published() -> None:
    assert all((package / "py.typed").is_file() for package in PACKAGES)


def test_import_loads_no_model_framework() -> None:
    code = "import json, sys, mlflow_cf, mlflow_cf_flavors; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(FRAMEWORKS) & set(json.loads(run.stdout))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_code_never_runs_data(path: Path) -> None:
    assert list(unsafe(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "exec('x = 1')",
        "import pickle",
        "import joblib as j",
        "from cloudpickle import loads",
        "yaml.load(text)",
        "from yaml import load",
        "pd.eval('a')",
        "frame.eval('a')",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_check_sees(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


@pytest.mark.parametrize("code", ["model.eval()", "yaml.safe_load(text)", "np.load(path, allow_pickle=False)"])
def test_the_check_lets_pass(code: str) -> None:
    assert not list(unsafe(ast.parse(code)))
