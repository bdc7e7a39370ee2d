"""How an artifact is checked as it lies in a folder, and how an explained model is made of it.

The check imports, opens and runs nothing of the model inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow_cf.artifact import sources
from mlflow_cf.artifact.format import files, manifest
from mlflow_cf.artifact.format.files import FolderContents
from mlflow_cf.artifact.format.mlmodel import MLMODEL, stated
from mlflow_cf.artifact.format.pickled import with_functions
from mlflow_cf.artifact.publish import versions
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer, Learned
from mlflow_cf.model import switches
from mlflow_cf.model.flavors import INNER, open_folder
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.parity import with_levels_of
from mlflow_cf.model.versions import named
from mlflow_cf.request.context import ExtraModels, LearnedOnce
from mlflow_cf.survival import FutureModels


def load_folder(folder: Path) -> ExplainedModel:
    """Load the explained model in a local MLflow model folder, and leave nothing in it.

    Raises:
        ArtifactError: it is not an explained model, incomplete, altered, of an unknown version, or forged.
    """
    parts = files.read(folder, stated(folder))
    with sources.no_bytecode():
        model = open_model(folder, parts)
        try:
            return assembled(model, folder, parts, parts.explainer, parts.learned)
        except InputError as error:
            fact = f"does not fit its model ({error.message})"
            raise ArtifactError(manifest.FOLDER, fact, "log the explained model again") from error


def open_model(folder: Path, parts: FolderContents) -> OpenModel:
    """Open the model in a folder whose other files have been read.

    Raises:
        ArtifactError: it brings code of its own, and MLflow's switch forbids to run that.
    """
    if code := next((name for name in parts.manifest.files if name.endswith(".py")), None):
        switches.check(code, "is code that the model brings", switches.CODE)
        sources.import_sources_only(folder)
    return _opened(folder / INNER, parts)


def _opened(folder: Path, parts: FolderContents) -> OpenModel:
    return open_folder(folder, output=parts.manifest.output, rows=parts.background.rows)


def assembled(
    model: OpenModel, folder: Path, parts: FolderContents, explainer: AnyExplainer, learned: Learned | None
) -> ExplainedModel:
    """Join the model with everything else in its folder, and with an explainer and what that has learned.

    Raises:
        InputError: something does not fit the model.
        ArtifactError: Python functions that MLflow forbids to unpickle, or that are not those of the policy.
    """
    policy = parts.policy
    if parts.functions is not None:  # after the model was opened, whose code they may use
        constraints = with_functions(policy.constraints, parts.functions)
        policy = policy.model_copy(update={"constraints": constraints})
    others = {}
    for version in policy.robust_to:
        with named(version.name):
            others[version.name] = _opened(folder / versions.FOLDER / version.name, parts)
    future = None
    if policy.survival is not None and parts.future is not None:
        structure, note = parts.future
        future = FutureModels.of(structure, policy.survival.of, model, parts.space, parts.codes, note)
    space = with_levels_of(model, parts.space, parts.background.rows)
    extra_models = ExtraModels.learn(parts.policy, others, space, parts.codes, parts.plausibility, future)
    kept = LearnedOnce(learned, extra_models, parts.causal)
    return ExplainedModel.build(model, space, parts.background, policy, explainer, kept)


@dataclass(frozen=True)
class Checked:
    """What was checked.

    Attributes:
        files: how many files, MLmodel and the manifest among them.
        bytes: of all of them together.
        rows: of the background.
        schema_version: of the artifact's format.
        versions: distribution -> the version that wrote the artifact.
        sha256: digest of the manifest, which holds those of all other files.
    """

    files: int
    bytes: int
    rows: int
    schema_version: int
    versions: Mapping[str, str]
    sha256: str


def verify_folder(folder: Path) -> Checked:
    """Check every file of the explained model in the MLflow model folder `folder`, and parse those that are ours.

    Raises:
        ArtifactError: it is not an explained model, incomplete, altered or of an unknown version.
    """
    parts = files.read(folder, stated(folder))
    sealed = parts.manifest
    names = {MLMODEL, manifest.MANIFEST, *sealed.files}
    if sealed.model_sha256 is not None:
        names |= {path.relative_to(folder).as_posix() for path in (folder / INNER).rglob("*") if path.is_file()}
    size = sum((folder / name).stat().st_size for name in names)
    return Checked(len(names), size, len(parts.background.rows), sealed.schema_version, sealed.versions, sealed.sha256)
