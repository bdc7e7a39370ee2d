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

FRAMEWORKS = ("xgboost", "lightgbm", "catboost", "torch", "tensorflow", "onnx", "onnxruntime", "pyspark")
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "joblib", "cloudpickle", "dill", "marshal", "shelve", "numexpr"}
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__"}
# PyYAML's loaders that construct more than plain values, whatever they are handed to.
UNSAFE_LOADERS = {"Loader", "FullLoader", "UnsafeLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}
TABLE_METHODS = {"eval", "query"}  # of pandas: they take text, and run it
# MLflow pickles a function there, if its owner allows it: cloudpickle is named as a requirement, and never imported.
NAMES_CLOUDPICKLE = {"callables.py", "pickled.py"}
# The one file that pickles, and unpickles where MLflow's switch allows it: Python functions of actions, by opt-in.
PICKLES = PACKAGES[0] / "artifact" / "format" / "pickled.py"
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
    ("runpy", "run_path"),
    ("runpy", "run_module"),
}


def is_unsafe(module: str, attribute: str) -> bool:
    loader = module == "yaml" and attribute in UNSAFE_LOADERS
    return (module, attribute) in UNSAFE_CALLS or loader or (module == "builtins" and attribute in UNSAFE_NAMES)


def unsafe_call(call: ast.Call) -> list[str]:
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return [name] if name in UNSAFE_NAMES | UNSAFE_LOADERS else []
        case ast.Call(func=ast.Name(id=name)):
            return [name] if name in UNSAFE_NAMES else []
        # A table's own eval takes text; a torch module's takes nothing.
        case ast.Call(func=ast.Attribute(attr=attribute), args=[_, *_]) if attribute in TABLE_METHODS:
            return [f".{attribute}(text)"]
        case ast.Call(func=ast.Attribute(attr=attribute), keywords=[ast.keyword(arg="expr"), *_]):
            return [f".{attribute}(expr=text)"]
    return []


def unsafe(tree: ast.AST) -> Iterator[str]:
    """Yield what in the code could run text or bytes as code."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names if name.name.split(".")[0] in UNSAFE_MODULES]
            case ast.ImportFrom(module=str(module), level=0):
                imported = {(module, name.name) for name in node.names}
                found = [f"{a}.{b}" for a, b in imported if a.split(".")[0] in UNSAFE_MODULES or is_unsafe(a, b)]
            case ast.Call():
                found = unsafe_call(node)
            # Called, or handed to something that calls it.
            case ast.Attribute(value=ast.Name(id=module), attr=attribute) if is_unsafe(module, attribute):
                found = [f"{module}.{attribute}"]
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
    assert {"xgboost", "lightgbm", "catboost", "pytorch", "interpret", "onnx", "spark", "benchmark", "dev"} == set(
        about.get_all("Provides-Extra")
    )  # no extra without code behind it


def test_version_is_the_distributions() -> None:
    assert mlflow_cf.__version__ == version("mlflow-cf")


def test_public_names_exist() -> None:
    assert {"wrap", "save_model", "log_model", "load_model"} <= set(mlflow_cf.__all__)
    for name in mlflow_cf.__all__:
        assert getattr(mlflow_cf, name) is not None


def test_every_module_imports() -> None:
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))


def test_types_are_published() -> None:
    assert all((package / "py.typed").is_file() for package in PACKAGES)


@pytest.mark.system
def test_import_loads_no_model_framework() -> None:
    """MLflow itself imports pyspark where that is installed, and no other."""
    ours, of_mlflow = (loaded_by(names) for names in ("mlflow_cf, mlflow_cf_flavors", "mlflow"))
    assert ours <= of_mlflow <= {"pyspark"}


def loaded_by(names: str) -> set[str]:
    """Return the frameworks that Python has loaded after an import."""
    code = f"import json, sys, {names}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(FRAMEWORKS) & set(json.loads(run.stdout))


def test_code_never_runs_data(trees: dict[Path, ast.AST]) -> None:
    found = {path: {what.partition(": ")[2] for what in unsafe(tree)} for path, tree in trees.items()}
    assert {path.as_posix(): what for path, what in found.items() if what} == {PICKLES.as_posix(): {"cloudpickle"}}


def test_cloudpickle_is_named_where_functions_are_stored_alone(trees: dict[Path, ast.AST]) -> None:
    assert {path.name for path, tree in trees.items() if UNSAFE_MODULES & set(texts(tree))} <= NAMES_CLOUDPICKLE


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.AST]:
    sources = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources}


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


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
        "frame.query('a > 1')",
        "frame.query(expr=text)",
        "yaml.parse(text, Loader=yaml.UnsafeLoader)",
        "from yaml import FullLoader",
        "read = yaml.unsafe_load",
        "builtins.exec(text)",
        "getattr(builtins, 'eval')",
        "import dill",
    ],
)
def test_the_check_sees(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "yaml.safe_load(text)",
        "np.load(path, allow_pickle=False)",
        "re.compile('a')",
        "Layers.compile(columns)",
        "yaml.parse(text, Loader=yaml.SafeLoader)",
    ],
)
def test_the_check_lets_pass(code: str) -> None:
    assert not list(unsafe(ast.parse(code)))
