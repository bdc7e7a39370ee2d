"""The architecture as data: which floor may know which, and what no floor may know."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlflow_cf

PACKAGE = Path(mlflow_cf.__file__).parent

# From the roof to the ground. A floor knows the floors below it; modules of one floor may know each other.
FLOORS = (
    ("cli",),
    ("testing",),
    ("autologging",),
    ("spark",),
    ("gating", "monitoring", "ui"),
    ("evaluation",),
    ("reporting",),
    ("artifact",),
    ("files",),
    ("audit",),
    ("wrapping",),
    ("explained",),
    ("options", "ordering", "plots"),
    ("records",),
    ("request",),
    ("levers",),
    ("proof",),
    ("regions",),
    ("why_not",),
    ("portfolio",),
    ("explainers",),
    ("engine", "milp"),
    ("search",),
    ("metrics", "survival"),
    ("problem",),
    ("reasons",),
    ("goal",),
    ("policy",),
    ("plans",),
    ("causal", "suggest"),
    ("model",),
    ("structures",),
    ("constraints",),
    ("plaf",),
    ("cards", "words"),
    ("backgrounds",),
    ("features",),
    ("parquet", "validation"),
    ("errors", "kernel", "quiet", "rounding", "stepwise", "unlogged", "version"),
)
LEVEL = {name: -height for height, floor in enumerate(FLOORS) for name in floor}

FRAMEWORKS = {"xgboost", "lightgbm", "catboost", "torch", "tensorflow", "onnx", "onnxruntime", "pyspark"}
# scikit-learn and MLflow are general tools; flavors are imported by name when an MLmodel names them
FORBIDDEN = FRAMEWORKS | {"mlflow_cf_flavors"}
# what is for a framework alone, and nobody imports unasked
ONLY_FOR = {"spark": "pyspark"}
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of all modules that a file imports, at the top or anywhere inside."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "mlflow_cf":
                yield from (f"mlflow_cf.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def floor(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_a_floor() -> None:
    assert {floor(path) for path in MODULES} == set(LEVEL)


@pytest.fixture(scope="module")
def known() -> dict[Path, set[str]]:
    """What each module imports."""
    return {path: set(imported(path)) for path in MODULES}


def test_nothing_below_imports_the_package_itself(known: dict[Path, set[str]]) -> None:
    assert [path for path, names in known.items() if "mlflow_cf" in names] == []


def test_arrows_point_down(known: dict[Path, set[str]]) -> None:
    for path, names in known.items():
        ours = {name.split(".")[1] for name in names if name.startswith("mlflow_cf.")}
        assert ours <= set(LEVEL), f"{path} imports a name of the package's own __init__"
        assert {name for name in ours if LEVEL[name] > LEVEL[floor(path)]} == set(), path


def test_the_core_knows_no_framework(known: dict[Path, set[str]]) -> None:
    frameworks = {
        path: {name.split(".")[0] for name in names} & FORBIDDEN - {ONLY_FOR.get(floor(path))}
        for path, names in known.items()
    }
    assert {path: names for path, names in frameworks.items() if names} == {}


def test_what_is_for_a_framework_is_imported_by_nobody_else(known: dict[Path, set[str]]) -> None:
    for path, names in known.items():
        theirs = {name for name in names if name.startswith("mlflow_cf.") and name.split(".")[1] in ONLY_FOR}
        assert not theirs or floor(path) in ONLY_FOR, path
