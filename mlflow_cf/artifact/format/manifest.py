"""The manifest: what every file of an artifact was when it was logged. Two versions of it can be read.

The first one names the files of ``counterfactual/``, and has one digest for all of ``model/``. The second names every
file below the model folder and has a digest of MLmodel's own fields.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from mlflow_cf.artifact.format import mlmodel as tree
from mlflow_cf.artifact.format.mlmodel import Fingerprint, Stated
from mlflow_cf.artifact.format.plain import AGAIN, json_bytes, read_bounded, reading, sha256_of
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.model.flavors import INNER
from mlflow_cf.version import VERSION

SCHEMA_VERSION: Final = 2
FOLDER: Final = "counterfactual"
MANIFEST: Final = f"{FOLDER}/manifest.json"
MOST_BYTES: Final = 4 * 1024**2  # some 30,000 files
_KNOWN: Final = (1, SCHEMA_VERSION)
# Left by MLflow where it downloads a model, and by Python where it imports one; the first version did not look at them.
_NOT_OF_THE_MODEL: Final = ("registered_model_meta", "__pycache__")


@dataclass(frozen=True)
class Manifest:
    """What a manifest says.

    Attributes:
        schema_version: of the artifact's format.
        sha256: digest of the manifest itself.
        versions: distribution -> the version that wrote the artifact.
        output: what the model inside returns, where it does not say so itself.
        rows: of the background; None in the first version.
        model_sha256: digest of everything in ``model/``; None in the second version.
        files: name below the model folder -> size and digest; of ``counterfactual/`` alone in the first version.
    """

    schema_version: int
    sha256: str
    versions: Mapping[str, str]
    output: str | None
    rows: int | None
    model_sha256: str | None
    files: Mapping[str, Fingerprint]


def write(root: Path, output: str | None, rows: int, fields_sha256: str) -> str:
    """Seal everything below the model folder `root` but MLmodel; return the digest of the manifest.

    Raises:
        InputError: there is a file that cannot be part of an artifact, or there are too many.
    """
    for folder, _, _ in os.walk(root, topdown=False):  # no remote store keeps folders without files
        if folder != str(root) and not any(Path(folder).iterdir()):
            Path(folder).rmdir()
    try:
        found = sorted(name for name, _ in tree.names(root) if not name.endswith("/") and name not in tree.UNSEALED)
    except ArtifactError as error:
        raise InputError("model", f"{error.path} {error.fact}", "log the model without it") from error
    written_by = {"mlflow-cf": VERSION, **{name: version(name) for name in ("mlflow", "numpy", "pandas")}}
    content = {
        "schema_version": SCHEMA_VERSION,
        "versions": written_by,
        "output": output,
        "rows": rows,
        "mlmodel_sha256": fields_sha256,
        "files": {name: tree.fingerprint(root, name) for name in found},
    }
    raw = json.dumps(content, allow_nan=False, indent=1).encode()
    if len(raw) > MOST_BYTES:
        raise InputError("model", f"has {len(found):,} files", "pack them into fewer")
    (root / MANIFEST).write_bytes(raw)
    return sha256_of(raw)


def read(root: Path, stated: Stated) -> Manifest:
    """Read the manifest in the model folder `root` and hold the names and sizes of all files against it.

    Raises:
        ArtifactError: anything missing, unknown, of another size or of another version.
    """
    raw = read_bounded(root, MANIFEST, MOST_BYTES)
    if sha256_of(raw) != stated.manifest_sha256:
        raise ArtifactError(MANIFEST, "is not the manifest that MLmodel names", AGAIN)
    with reading(MANIFEST):
        content = json.loads(raw)
        found = content["schema_version"]
        if found not in _KNOWN or type(found) is not int:
            fix = "install the version of mlflow-cf that wrote it (MLmodel names it)"
            raise ArtifactError(MANIFEST, f"schema version {str(found)[:20]}, known are 1 and 2", fix)
        manifest = _said(content, stated)
    if manifest.rows is None:
        present = {f"{FOLDER}/{path.name}" for path in (root / FOLDER).iterdir()} - {MANIFEST}
        if odd := min(present ^ set(manifest.files), default=None):
            raise ArtifactError(odd, "is not in the manifest" if odd in present else "is missing", AGAIN)
        return manifest
    if content["mlmodel_sha256"] != stated.fields_sha256:
        raise ArtifactError("MLmodel", "says something else than when the model was logged", AGAIN)
    tree.check(root, manifest.files, besides=MANIFEST)
    return manifest


def check_bytes(root: Path, manifest: Manifest) -> None:
    """Hold the bytes of all files but those in ``counterfactual/``, which are checked when they are read, against it.

    Raises:
        ArtifactError: one of them is another.
    """
    if manifest.model_sha256 is None:
        for name in manifest.files:
            if not name.startswith(f"{FOLDER}/"):
                with reading(name):
                    found = tree.fingerprint(root, name)
                if found != manifest.files[name]:
                    raise tree.altered(name)
    elif _digest_of_model(root / INNER) != manifest.model_sha256:
        raise ArtifactError(INNER, "is not the model that was explained", AGAIN)


def _said(content: Mapping[str, Any], stated: Stated) -> Manifest:
    """Return what a manifest of a known version says; an error where something is missing or of another type."""
    found, output, files, rows, model = content["schema_version"], content["output"], content["files"], None, None
    if found == 1:
        model = content["model_sha256"]
    else:
        rows = content["rows"]
        if type(rows) is not int or rows < 1 or not isinstance(content["mlmodel_sha256"], str):
            raise ValueError
    if not isinstance(files, dict) or not all(isinstance(value, dict) for value in files.values()):
        raise TypeError
    if not isinstance(output, str | None) or not (found > 1 or isinstance(model, str)):
        raise TypeError
    versions = {str(name): str(written) for name, written in content["versions"].items()}
    below = files if found > 1 else {f"{FOLDER}/{name}": value for name, value in files.items()}
    return Manifest(found, stated.manifest_sha256, versions, output, rows, model, below)


def _digest_of_model(folder: Path) -> str:
    """Return one sha256 over the names, sizes and bytes of all files below `folder`, as the first version had it."""
    if not folder.is_dir():
        raise ArtifactError(folder.name, "the folder of the model is missing", AGAIN)
    digest = hashlib.sha256()
    # Sorted by what is hashed: paths themselves sort otherwise on Windows.
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        relative = path.relative_to(folder)
        if path.is_symlink():
            raise ArtifactError(f"{folder.name}/{relative.as_posix()}", "is a link, not a file", AGAIN)
        if path.is_file() and not set(_NOT_OF_THE_MODEL) & set(relative.parts):
            found = tree.fingerprint(folder, relative.as_posix())
            digest.update(json_bytes([relative.as_posix(), found["bytes"], found["sha256"]]))
    return digest.hexdigest()
