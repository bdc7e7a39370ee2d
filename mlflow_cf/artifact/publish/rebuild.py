"""A logged explained model once more, with another explainer as its default."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from mlflow.models import Model
from mlflow.models.model import ModelInfo

from mlflow_cf.artifact import sources
from mlflow_cf.artifact.format import files, manifest
from mlflow_cf.artifact.format.mlmodel import stated
from mlflow_cf.artifact.load import assembled, open_model
from mlflow_cf.artifact.publish import versions
from mlflow_cf.artifact.publish.build import add_flavor, prove
from mlflow_cf.artifact.publish.hand_over import Publication
from mlflow_cf.artifact.publish.inner import LEAVINGS
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of
from mlflow_cf.model.flavors import OWN_FLAVOR, fetch

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
        with sources.no_bytecode():
            staged = _rebuilt(fetch(model_uri), chosen, Path(scratch) / "staged")
        return publication.publish(staged)


def _rebuilt(folder: Path, explainer: AnyExplainer, staged: Path) -> Path:
    """Copy the model in `folder` to the new folder `staged`, with the other explainer, and prove it."""
    parts = files.read(folder, stated(folder))
    explained = assembled(open_model(folder, parts), folder, parts, explainer, None)
    shutil.copytree(folder, staged, ignore=shutil.ignore_patterns(*LEAVINGS))
    shutil.rmtree(staged / manifest.FOLDER)
    meta = Model.load(str(staged))
    known = meta.flavors.pop(OWN_FLAVOR)
    lineage = {name: known[name] for name in KEPT if name in known}
    add_flavor(meta, staged, explained, lineage, parts.manifest.output)
    prove(staged, explained)
    return staged
