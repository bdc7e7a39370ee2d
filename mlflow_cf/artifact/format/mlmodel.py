"""What MLmodel says of an explained model, and one digest of all of it that decides anything.

Every file below a model folder is known by its name, size and digest. Names come from the folder and are compared with
those of the manifest; none that a manifest holds is ever opened.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlflow_cf.artifact.format.plain import AGAIN, MOST_NODES, plain_yaml, read_bounded, reading
from mlflow_cf.errors import ArtifactError
from mlflow_cf.model.flavors import OWN_FLAVOR

MLMODEL: Final = "MLmodel"
MOST_BYTES: Final = 4 * 1024**2
MANIFEST_KEY: Final = "manifest_sha256"
# What MLflow assigns when it logs a model. Nothing that is loaded, asked or answered depends on these fields.
ASSIGNED: Final = frozenset(
    {"artifact_path", "model_id", "model_size_bytes", "model_uuid", "run_id", "utc_time_created"}
)


@dataclass(frozen=True)
class Stated:
    """What the rest of an artifact is held against: both are sha256 in hexadecimal.

    Attributes:
        manifest_sha256: digest of the manifest, as MLmodel names it.
        fields_sha256: digest of MLmodel's own fields, as they are.
    """

    manifest_sha256: str
    fields_sha256: str


def stated(root: Path) -> Stated:
    """Read MLmodel in the model folder `root`, which may be forged.

    Raises:
        ArtifactError: it is missing, cannot be read, or is that of another model.
    """
    raw = read_bounded(root, MLMODEL, MOST_BYTES)
    with reading(MLMODEL):
        fields = plain_yaml(raw, aliases=True)
        flavors = fields["flavors"]
        conf = flavors.get(OWN_FLAVOR)
    if not isinstance(conf, dict) or not isinstance(conf.get(MANIFEST_KEY), str):
        raise ArtifactError(MLMODEL, "names no explained model", "pass one that mlflow_cf.log_model has logged")
    with reading(MLMODEL):
        return Stated(conf[MANIFEST_KEY], fields_sha256(fields))


def fields_sha256(fields: Mapping[str, Any]) -> str:
    """Return the digest of the fields of an MLmodel, without those that MLflow assigns and the manifest's digest.

    It is that of their JSON text, keys sorted.

    Raises:
        ValueError, TypeError, RecursionError: they are not plain, or too many.
    """
    deciding = {key: value for key, value in fields.items() if key not in ASSIGNED}
    flavors = dict(deciding["flavors"])
    flavors[OWN_FLAVOR] = {key: value for key, value in flavors.get(OWN_FLAVOR, {}).items() if key != MANIFEST_KEY}
    digest, size = hashlib.sha256(), 0
    # Piece by piece: parts that are named once and used often, which YAML allows, may unfold to any size.
    for count, piece in enumerate(json.JSONEncoder(sort_keys=True).iterencode({**deciding, "flavors": flavors})):
        size += len(piece)
        if size > MOST_BYTES or count > 4 * MOST_NODES:
            raise ValueError("too many fields")
        digest.update(piece.encode())
    return digest.hexdigest()


# Of the model folder alone: MLmodel's fields are checked for themselves; MLflow leaves the other where it downloads a
# registered version, and never reads it as part of a model.
UNSEALED: Final = frozenset({MLMODEL, "registered_model_meta"})
# On Databricks, MLflow puts copies of these files into a folder when it logs a model.
COPIES: Final = {f"metadata/{name}": name for name in (MLMODEL, "conda.yaml", "requirements.txt", "python_env.yaml")}
_BYTECODE: Final = (".pyc", ".pyo")

Fingerprint = Mapping[str, Any]


def fingerprint(root: Path, name: str) -> Fingerprint:
    """Return the size in bytes and the digest of one file."""
    path = root / name
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": path.stat().st_size}


def names(root: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size in bytes of every file below `root`; of every folder, its name with a slash behind it, and 0.

    Raises:
        ArtifactError: there is a link, compiled code, or something that is neither file nor folder.
    """
    folders = [""]
    while folders:
        at = folders.pop()
        with reading(at or MLMODEL), os.scandir(root / at) as entries:
            for entry in entries:
                name = at + entry.name
                _check_kind(name, entry)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                    yield folders[-1], 0
                else:
                    yield name, entry.stat(follow_symlinks=False).st_size


def _check_kind(name: str, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        raise ArtifactError(name, "is a link, not a file", AGAIN)
    if entry.name == "__pycache__" or entry.name.lower().endswith(_BYTECODE):
        raise ArtifactError(name, "is compiled code, which nobody can check against its source", "delete it")
    if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
        raise ArtifactError(name, "is neither a file nor a folder", AGAIN)


def check(root: Path, sealed: Mapping[str, Fingerprint], *, besides: str) -> None:
    """Compare names and sizes of all files below the model folder `root` with what was `sealed`, before any is read.

    Args:
        sealed: name -> what `fingerprint` returned of it; `besides`: name of one more file, which must be there.

    Raises:
        ArtifactError: a file or folder too many, a file that is missing or of another size.
    """
    missing = {besides, *sealed}
    folders = {f"{parent.as_posix()}/" for name in missing for parent in Path(name).parents}
    for name, size in names(root):
        if name in UNSEALED or name in folders or (name == "metadata/" and name not in folders):
            continue
        if name in COPIES and name not in missing:
            original = root / COPIES[name]
            same = original.is_file() and original.stat().st_size == size
            if not same or fingerprint(root, name) != fingerprint(root, COPIES[name]):
                raise ArtifactError(name, f"is no copy of {COPIES[name]}", AGAIN)
            continue
        if name not in missing:
            raise ArtifactError(name.rstrip("/"), "is not in the manifest", AGAIN)
        missing.remove(name)
        if name != besides and size != sealed[name].get("bytes"):
            raise altered(name)
    if missing:
        raise ArtifactError(min(missing), "is missing or not a file", AGAIN)


def altered(name: str) -> ArtifactError:
    """Return the error for a file that is not the one that was sealed."""
    return ArtifactError(name, "has other bytes than the manifest says", AGAIN)
