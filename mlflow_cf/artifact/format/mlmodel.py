"""What MLmodel says of an explained model, and one digest of all of it that decides anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlflow_cf.artifact.format.plain import MOST_NODES, plain_yaml, read_bounded, reading
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
