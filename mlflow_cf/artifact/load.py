"""An explained model from the files of an artifact."""

from __future__ import annotations

from pathlib import Path

from mlflow_cf.artifact import files, manifest, sources, versions
from mlflow_cf.artifact.files import Parts
from mlflow_cf.artifact.mlmodel import stated
from mlflow_cf.artifact.pickled import with_functions
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer, Learned
from mlflow_cf.model import switches
from mlflow_cf.model.flavors import open_folder
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.request.held import Held, Kept


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


def open_model(folder: Path, parts: Parts) -> OpenModel:
    """Open the model in a folder whose other files have been read.

    Raises:
        ArtifactError: it brings code of its own, and MLflow's switch forbids to run that.
    """
    if code := next((name for name in parts.manifest.files if name.endswith(".py")), None):
        switches.check(code, "is code that the model brings", switches.CODE)
        sources.import_sources_only(folder)
    return open_folder(folder / manifest.MODEL, output=parts.manifest.output, rows=parts.background.rows)


def assembled(
    model: OpenModel, folder: Path, parts: Parts, explainer: AnyExplainer, learned: Learned | None
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
    others = versions.open_packed(folder, parts.policy, parts.background.rows, parts.manifest.output)
    held = Held.learn(parts.policy, others, parts.space, parts.codes, parts.plausibility)
    kept = Kept(learned, held, parts.causal)
    return ExplainedModel.build(model, parts.space, parts.background, policy, explainer, kept)
