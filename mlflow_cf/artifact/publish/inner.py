"""The model inside an artifact: where it comes from, and how it gets into ``model/``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from inspect import signature as parameters_of
from pathlib import Path
from typing import Any, Final

import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.artifact.sources import CodePaths
from mlflow_cf.errors import InputError
from mlflow_cf.model.endpoint import ADDRESS
from mlflow_cf.model.flavors import check_is_model, fetch, flavor_of, inner_of

# What MLflow leaves in a model it downloads from a registry; it would claim our model to be that registered version.
LEAVINGS: Final = ("registered_model_meta", "__pycache__")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a folder's path says more about a machine than about a model


# What MLmodel says of the model inside, as far as it is known: MLflow's id, the URI it was given by, its flavors.
Lineage = Mapping[str, Any]


def address(model: object) -> str | Path | None:
    """Return where the files of `model` are: a URI or folder; None for a native object or web address, without any yet.

    Raises:
        InputError: a loaded pyfunc that does not know where it came from.
    """
    if isinstance(model, str | Path):
        return None if ADDRESS.match(str(model)) else model
    if not isinstance(model, PyFuncModel):
        return None
    meta = model.metadata
    if meta.model_id:
        return f"models:/{meta.model_id}"
    if meta.run_id and meta.artifact_path:
        return f"runs:/{meta.run_id}/{meta.artifact_path}"
    raise InputError("model", "this pyfunc does not know where it was loaded from", "pass the folder or URI itself")


def copy(source: str | Path, target: Path, scratch: Path, *, unwrap: bool = False) -> Lineage:
    """Copy the MLflow model at `source` to the new folder `target`; `scratch` is an empty folder for downloads.

    With `unwrap`, of an explained model the model inside is copied.
    """
    found = fetch(source, scratch)
    check_is_model(found)  # before copying: a mistyped path may lead to anything
    found = inner_of(found) if unwrap else found
    if found.is_relative_to(scratch):
        shutil.move(found, target)
        for left in [path for name in LEAVINGS for path in target.rglob(name)]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    else:
        shutil.copytree(found, target, ignore=shutil.ignore_patterns(*LEAVINGS))
    meta = Model.load(str(target))
    uri = str(source) if _URI.match(str(source)) and not str(source).startswith("file:") else None
    known = {"inner_model_id": meta.model_id, "inner_model_uri": uri, "inner_flavors": sorted(meta.flavors)}
    return {key: value for key, value in known.items() if value}


def drop_example(folder: Path) -> None:
    """Delete the input example of the model in `folder`, which is usually made of training rows."""
    meta: Any = Model.load(str(folder))
    told: Mapping[str, Any] = meta.saved_input_example_info or {}
    for key in ("artifact_path", "serving_input_path"):
        if key in told:
            (folder / Path(told[key]).name).unlink(missing_ok=True)
    if told:
        meta.saved_input_example_info = None
        meta.save(str(folder / "MLmodel"))


def write(
    model: object,
    target: Path,
    signature: ModelSignature,
    *,
    background: pd.DataFrame,
    allow_functions: bool = False,
    code_paths: CodePaths = (),
) -> Lineage:
    """Write a native model as an MLflow model into the new folder `target`; functions, pickled, only if allowed.

    A flavor that asks for `code_paths` may trust what these define; one that asks for the `background` may store what
    its model says of these rows.
    """
    module: Any = flavor_of(model)
    needed = module.requirements(model)
    offered = {"code_paths": code_paths, "background": background}
    asked = parameters_of(module.save).parameters
    further = {name: one for name, one in offered.items() if name in asked}
    module.save(model, target, signature=signature, pip_requirements=needed, allow_functions=allow_functions, **further)
    return {"inner_flavors": sorted(Model.load(str(target)).flavors)}
