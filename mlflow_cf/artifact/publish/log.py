"""Save, log and load an explained model as an MLflow model, or log it once more with another explainer.

Everything is built and proved in a temporary folder; MLflow sees it only when it is ready.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mlflow.models import Model, ModelSignature
from mlflow.models.model import ModelInfo
from numpy.typing import ArrayLike

from mlflow_cf.artifact import sources
from mlflow_cf.artifact.format import files, manifest
from mlflow_cf.artifact.format.mlmodel import stated
from mlflow_cf.artifact.load import assembled, load_folder, open_model
from mlflow_cf.artifact.publish import versions
from mlflow_cf.artifact.publish.account import account_of
from mlflow_cf.artifact.publish.build import Built, Packaging, Validate, add_flavor, build, prove
from mlflow_cf.artifact.publish.hand_over import Publication
from mlflow_cf.artifact.publish.inner import LEAVINGS
from mlflow_cf.artifact.publish.requirements import warn_of_pin
from mlflow_cf.artifact.sources import CodePaths
from mlflow_cf.backgrounds import Background
from mlflow_cf.constraints import ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of
from mlflow_cf.features import Table
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch
from mlflow_cf.options import DistanceSource, PlausibleSource, TargetSource, WrapOptions, told_by
from mlflow_cf.policy import Limits, Privacy, Sealable, Trace, WhyNotAsked
from mlflow_cf.policy.limits import LEAST_DIFFERENCE, Diversity
from mlflow_cf.policy.survival import SurvivalSource
from mlflow_cf.words.phrases import Language


@told_by(WrapOptions, Packaging)
def save_model(
    model: object,
    path: str | Path,
    data: Table | Background,
    labels: ArrayLike | None = None,
    *,
    target: TargetSource = None,
    constraints: ConstraintSource = None,
    explainer: ExplainerSource = "geco",
    features: Mapping[str, Mapping[str, Any]] | None = None,
    distance: DistanceSource = (0.5, 0.5, 0.0),
    values: Values = "observed",
    seed: int = 0,
    limits: Limits | Mapping[str, Any] | None = None,
    certify: bool = False,
    privacy: Privacy | Mapping[str, Any] | None = None,
    seal: Sequence[Sealable] = ("target",),
    trace: bool | Trace = False,
    robust_to: Sequence[object] = (),
    plausible: PlausibleSource = None,
    margin: float = 0.0,
    diversity: Diversity = "sets",
    min_difference: float = LEAST_DIFFERENCE,
    why_not: WhyNotAsked = "quick",
    language: Language = "en",
    reasons: Mapping[str, Any] | None = None,
    protected: Sequence[str] = (),
    survival: SurvivalSource = None,
    output: str | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: str | Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    allow_functions: bool = False,
    code_paths: CodePaths | None = None,
    validate: Validate | None = None,
) -> None:
    """Save an explained model as an MLflow model folder.

    Args:
        model: a fitted model or pipeline, an MLflow model URI or folder, a loaded pyfunc, or a function of a table.
        path: folder to write; it must be new or empty.
        data: sample of the training rows in the model's own raw input columns: a table, or an array (n, d). It becomes
            part of the artifact. A column that never varies here is never proposed. Of more rows than memory holds, a
            `mlflow_cf.Background`.
        labels: (n,) training target of these rows, for explainers that use it.
        (see `WrapOptions`)
        (see `Packaging`)

    Raises:
        InputError: anything that does not fit. Nothing is left behind at `path` then.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("path", f"{str(folder)!r} exists and is not an empty folder", "choose a new folder")
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not,
                          language, reasons, protected, survival)  # fmt: skip
    how = Packaging(output, signature, input_example, pip_requirements, metadata, allow_functions, code_paths, validate)
    with _built(model, data, labels, options, how) as built, _removed_on_failure(folder):
        shutil.copytree(built.folder, folder, dirs_exist_ok=True)


@told_by(WrapOptions, Packaging)
def log_model(
    model: object,
    name: str,
    data: Table | Background,
    labels: ArrayLike | None = None,
    *,
    target: TargetSource = None,
    constraints: ConstraintSource = None,
    explainer: ExplainerSource = "geco",
    features: Mapping[str, Mapping[str, Any]] | None = None,
    distance: DistanceSource = (0.5, 0.5, 0.0),
    values: Values = "observed",
    seed: int = 0,
    limits: Limits | Mapping[str, Any] | None = None,
    certify: bool = False,
    privacy: Privacy | Mapping[str, Any] | None = None,
    seal: Sequence[Sealable] = ("target",),
    trace: bool | Trace = False,
    robust_to: Sequence[object] = (),
    plausible: PlausibleSource = None,
    margin: float = 0.0,
    diversity: Diversity = "sets",
    min_difference: float = LEAST_DIFFERENCE,
    why_not: WhyNotAsked = "quick",
    language: Language = "en",
    reasons: Mapping[str, Any] | None = None,
    protected: Sequence[str] = (),
    survival: SurvivalSource = None,
    output: str | None = None,
    registered_model_name: str | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: str | Sequence[str] | None = None,
    tags: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    allow_functions: bool = False,
    code_paths: CodePaths | None = None,
    validate: Validate | None = None,
) -> ModelInfo:
    """Log an explained model to MLflow, in the active run if there is one, and register it if asked to.

    Args:
        model: a fitted model or pipeline, an MLflow model URI or folder, a loaded pyfunc, or a function of a table.
        name: name of the logged model.
        data: sample of the training rows in the model's own raw input columns: a table, or an array (n, d). It becomes
            part of the artifact. A column that never varies here is never proposed. Of more rows than memory holds, a
            `mlflow_cf.Background`.
        labels: (n,) training target of these rows, for explainers that use it.
        (see `WrapOptions`)
        (see `Packaging`)
        registered_model_name: registers a version under this name.
        tags: tags of the logged model and of the registered version.

    Raises:
        InputError: anything that does not fit. Nothing is logged then.
    """
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not,
                          language, reasons, protected, survival)  # fmt: skip
    how = Packaging(output, signature, input_example, pip_requirements, metadata, allow_functions, code_paths, validate)
    publication = Publication.prepared(name, registered_model_name, tags)
    with publication.withdrawn_on_failure(), _built(model, data, labels, options, how) as built:
        info = publication.publish(built.folder, account_of(built.explained))
        warn_of_pin(pip_requirements)
        return info


def log_beside(
    model_uri: str,
    name: str,
    data: Table | Background,
    labels: ArrayLike | None,
    options: WrapOptions,
    registered_model_name: str | None = None,
) -> tuple[ModelInfo, ExplainedModel]:
    """Log the explained model of a logged one in the active run, and return it; that one stays the last logged model.

    Raises:
        InputError: anything that does not fit. Nothing is logged then.
    """
    publication = Publication.prepared(name, registered_model_name)
    with publication.withdrawn_on_failure(), _built(model_uri, data, labels, options, Packaging()) as built:
        return publication.publish(built.folder, account_of(built.explained), last=False), built.explained


KEPT: Final = ("inner_model_id", "inner_model_uri", "inner_flavors", versions.FOLDER)  # of what MLmodel says


def log_with_explainer(
    model_uri: str | Path, explainer: ExplainerSource, name: str, registered_model_name: str | None = None
) -> ModelInfo:
    """Log the explained model at a URI or in a folder anew, with another explainer, and register it if asked to.

    Raises:
        InputError: an explainer that does not fit the model, or a name that the registry refuses. Nothing is logged.
        ArtifactError: the model cannot be read.
    """
    chosen = explainer_of(explainer)
    publication = Publication.prepared(name, registered_model_name)
    with publication.withdrawn_on_failure(), tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch:
        folder, staged = fetch(model_uri), Path(scratch) / "staged"
        with sources.no_bytecode():
            parts = files.read(folder, stated(folder))
            explained = assembled(open_model(folder, parts), folder, parts, chosen, None)
            shutil.copytree(folder, staged, ignore=shutil.ignore_patterns(*LEAVINGS))
            shutil.rmtree(staged / manifest.FOLDER)
            meta = Model.load(str(staged))
            known = meta.flavors.pop(OWN_FLAVOR)
            lineage = {name: known[name] for name in KEPT if name in known}
            add_flavor(meta, staged, explained, lineage, parts.manifest.output)
            prove(staged, explained)
        return publication.publish(staged, account_of(explained))


def load_model(model_uri: str | Path) -> ExplainedModel:
    """Load an explained model from a `model_uri` of MLflow, such as ``models:/loans/1``, or from a folder.

    Raises:
        InputError: there is nothing at that address.
        ArtifactError: it is not an explained model, incomplete, altered, of an unknown version, or forged; or it has
            Python functions, and MLFLOW_ALLOW_MODEL_CODE_EXECUTION or MLFLOW_ALLOW_PICKLE_DESERIALIZATION forbids to
            load them.
    """
    return load_folder(fetch(model_uri))


@contextmanager
def _built(
    model: object, data: Table | Background, labels: ArrayLike | None, options: WrapOptions, packaging: Packaging
) -> Iterator[Built]:
    with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch, sources.no_bytecode():
        try:
            yield build(model, data, labels, options, packaging, Path(scratch))
        finally:
            sources.forget(Path(scratch))


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    """Leave `folder` as it was, if it was there: empty."""
    before = folder.exists()
    new = [parent for parent in folder.absolute().parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for left in folder.iterdir() if before else [new[-1] if new else folder]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        raise
