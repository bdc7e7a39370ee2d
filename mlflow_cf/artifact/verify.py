"""Check an artifact as it lies in a folder: nothing of the model inside is imported, opened or run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow_cf.artifact import files, manifest
from mlflow_cf.artifact.mlmodel import MLMODEL, stated


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
        inner = folder / manifest.MODEL
        names |= {
            f"{manifest.MODEL}/{path.relative_to(inner).as_posix()}" for path in inner.rglob("*") if path.is_file()
        }
    size = sum((folder / name).stat().st_size for name in names)
    return Checked(len(names), size, len(parts.background.rows), sealed.schema_version, sealed.versions, sealed.sha256)
