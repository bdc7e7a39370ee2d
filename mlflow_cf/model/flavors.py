"""Which flavor module opens which model; a module is imported only when a model needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.errors import InputError
from mlflow_cf.features import ColumnName, FeatureSpace, Table, as_background
from mlflow_cf.model.endpoint import as_model
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.version import VERSION

GENERIC: Final = "python_function"
FUNCTION: Final = "mlflow_cf_function"
UNNAMED: Final = (FUNCTION, GENERIC)  # opened with tables as they come, also with numbers for names
OWN_FLAVOR: Final = "mlflow_cf"
INNER: Final = "model"  # folder of the model inside an explained one
# MLflow's name of a flavor -> our module, in the order of preference for a model with several flavors.
MODULES: Final = MappingProxyType(
    {
        "xgboost": "mlflow_cf_flavors.xgboost.flavor",
        "lightgbm": "mlflow_cf_flavors.lightgbm.flavor",
        "catboost": "mlflow_cf_flavors.catboost.flavor",
        "onnx": "mlflow_cf_flavors.onnx.flavor",
        "pytorch": "mlflow_cf_flavors.pytorch.flavor",
        "sklearn": "mlflow_cf_flavors.sklearn.flavor",
        "mlflow_cf_endpoint": "mlflow_cf_flavors.endpoint.flavor",
        FUNCTION: "mlflow_cf_flavors.callables",
        GENERIC: "mlflow_cf_flavors.pyfunc",
    }
)
# Libraries whose models are taken once MLflow has logged them -> MLflow's module for them.
_AS_NAMED: Final = (
    "h2o",
    "keras",
    "onnx",
    "paddle",
    "prophet",
    "statsmodels",
    "tensorflow",
    "transformers",
)
LOGGED_FIRST: Final = MappingProxyType({**{name: name for name in _AS_NAMED}, "pyspark": "spark", "torch": "pytorch"})
ENTRY_POINTS: Final = "mlflow_cf.flavors"


class Flavor(Protocol):
    """What a flavor module offers as plain functions.

    Attributes:
        MLFLOW_FLAVOR: the key of such models among the flavors of an MLmodel.
    """

    MLFLOW_FLAVOR: str

    def accepts(self, model: object) -> bool:
        """Return whether `model` is a native model of this flavor; no framework is imported for the question."""

    def requirements(self, model: object) -> list[str]:
        """Return the pinned requirements that restore a native model."""

    def save(
        self,
        model: object,
        path: Path,
        *,
        signature: object,
        pip_requirements: list[str],
        allow_functions: bool = False,
    ) -> None:
        """Write `model` as an MLflow model folder; pickled only where there is no other way and it is allowed.

        A flavor with one more parameter, ``code_paths``, is told which files and folders of the user's own code come
        with the model: it may trust what these define. They are copied beside the model for it. One with ``background``
        is handed the rows of the artifact's background, and may store what the model says of them.

        Raises:
            InputError: it cannot be written so; with the way out.
        """

    def load(self, path: Path) -> object:
        """Load the native model of an MLflow model folder."""

    def open(self, model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
        """Open a native model: its own decision, and its fastest thread-safe score.

        Args:
            model: what `accepts` takes.
            output: ``label``, ``score`` or ``value``: what its answers are, where it does not say so itself.
            rows: some rows it must be able to answer.

        Raises:
            InputError: it is not fitted, gives no label or number per row, or cannot answer `rows`.
        """


def flavor_names() -> Iterator[str]:
    """Yield the names of all known flavors, most native first; those that take almost anything last.

    What is installed is looked through only where no flavor of ours was taken: that costs more than opening a model.
    """
    yield from (name for name in MODULES if name not in UNNAMED)
    yield from sorted({point.name for point in entry_points(group=ENTRY_POINTS)} - set(MODULES))
    yield from UNNAMED


def flavor_named(name: str) -> Flavor:
    """Import the module of the flavor called `name`; InputError if another package's cannot be imported."""
    if name in MODULES:
        return cast("Flavor", import_module(MODULES[name]))
    point = next(point for point in entry_points(group=ENTRY_POINTS) if point.name == name)
    try:
        return cast("Flavor", point.load())
    except ImportError as error:
        fact = f"the module of the installed flavor {name!r} cannot be imported ({error.msg})"
        raise InputError("model", fact, f"install what it needs, or a version of it for mlflow-cf {VERSION}") from error


def flavor_of(model: object) -> Flavor:
    """Return the flavor that takes a native `model`; InputError if none does."""
    libraries = (base.__module__.split(".")[0] for base in type(model).__mro__)  # nothing is imported for the question
    library = next((LOGGED_FIRST[library] for library in libraries if library in LOGGED_FIRST), None)
    for name in flavor_names():
        # a network can be called, and yet is no function of a table
        if not (library and name == FUNCTION) and (module := flavor_named(name)).accepts(model):
            return module
    if library:
        fix = f"log it with mlflow.{library}.log_model and pass the model_uri of what it returns"
        raise InputError("model", f"a {type(model).__name__} can be taken from MLflow alone", fix)
    fix = "pass a fitted model, an MLflow model URI or folder, a loaded pyfunc, or a function with output="
    fix += "; a kind of your own needs an installed package with the entry point mlflow_cf.flavors"
    raise InputError("model", f"{type(model).__name__} is not a kind of model known here", fix)


def open_native(model: object, *, output: str | None = None, rows: Table | None = None) -> OpenModel:
    """Open a model object, the model at an MLflow URI or in a folder, or the one that answers at a web address.

    A loaded pyfunc is opened through the native model inside it where that is possible.
    """
    model = as_model(model)
    if isinstance(model, str | Path):
        return open_folder(fetch(model), output=output, rows=rows)
    module = flavor_of(model)
    if module.MLFLOW_FLAVOR == GENERIC and (inner := _raw_model(model)) is not None:
        module, model = flavor_of(inner), inner
    return _open(module, model, output, rows)


def open_folder(path: Path, *, output: str | None = None, rows: Table | None = None) -> OpenModel:
    """Open the MLflow model in the folder `path` with the most native flavor it names."""
    module = flavor_of_folder(path)
    return _open(module, module.load(path), output, rows)


def _open(module: Flavor, model: object, output: str | None, rows: Table | None) -> OpenModel:
    """Open a model; what is wrong with the rows themselves is said before what the model says about them."""
    if rows is None:
        return module.open(model, output=output)
    table = as_background(rows, _names(module, model, rows), numbered=module.MLFLOW_FLAVOR in UNNAMED)
    try:
        return module.open(model, output=output, rows=table)
    except InputError as error:
        if error.path == "data":
            FeatureSpace.infer(table)
        raise


def _names(module: Flavor, model: object, rows: object) -> Sequence[ColumnName]:
    """Return the model's own names of its columns, if it has them and `rows` lack some."""
    if isinstance(rows, pd.DataFrame) and all(isinstance(column, str) for column in rows.columns):
        return ()
    if isinstance(model, PyFuncModel):
        schema = model.metadata.get_input_schema()
        return schema.input_names() if schema is not None and schema.has_input_names() else ()
    with suppress(InputError):
        return module.open(model).columns
    return ()


def fetch(source: str | Path, into: Path | None = None) -> Path:
    """Return the local folder of the MLflow model at a URI or path, downloaded into the folder `into` if given.

    Raises:
        InputError: there is nothing at that address.
    """
    if Path(source).is_dir():
        return Path(source)
    try:
        return Path(
            mlflow.artifacts.download_artifacts(artifact_uri=str(source), dst_path=None if into is None else str(into))
        )
    except (MlflowException, ValueError, OSError) as error:
        fact = f"{str(source)!r} cannot be fetched ({getattr(error, 'message', error)})"
        raise InputError("model", fact, "pass a URI such as 'models:/name/1', or a folder") from error


def check_is_model(folder: Path) -> None:
    """Refuse a folder that is no MLflow model."""
    if not (folder / "MLmodel").is_file():
        fix = "pass the folder or URI of an MLflow model"
        raise InputError("model", f"there is no MLmodel file in {str(folder)!r}", fix)


def flavor_of_folder(path: Path) -> Flavor:
    """Return the most native known flavor of the MLflow model in the folder `path`."""
    check_is_model(path)
    named = Model.load(str(path)).flavors
    if OWN_FLAVOR in named:
        raise InputError("model", "is an explained model already", "pass the model it was made from")
    for name in flavor_names():
        if name in named:
            return flavor_named(name)
    raise InputError("model", f"has only the flavors {sorted(named)}", "log it with a python_function flavor")


def inner_of(folder: Path) -> Path:
    """Return the folder of the model inside, where the MLflow model in `folder` is an explained one; else `folder`."""
    check_is_model(folder)
    return folder / INNER if OWN_FLAVOR in Model.load(str(folder)).flavors else folder


def _raw_model(model: object) -> object | None:
    """Return the native model inside a loaded pyfunc, or None if only the generic flavor knows it."""
    pyfunc: Any = model
    named = pyfunc.metadata.flavors if isinstance(model, PyFuncModel) else {}
    if OWN_FLAVOR in named:
        raise InputError("model", "is an explained model already", "pass the model it was made from")
    natives = [flavor_named(name) for name in flavor_names() if name != GENERIC and name in named]
    try:
        inner: object = pyfunc.get_raw_model() if natives else None
    except NotImplementedError:
        return None
    return inner if any(native.accepts(inner) for native in natives) else None
