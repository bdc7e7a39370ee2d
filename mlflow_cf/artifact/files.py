"""The folder ``counterfactual/`` of a saved model: written once, read only after every byte has been checked.

File names are constants of this module; none is ever read from a file. What is read first is `manifest.json`, whose own
digest stands in MLmodel, then size and digest of every other file, and only then are they parsed. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from mlflow_cf.artifact.learned import arrays_to_bytes, learned_from_bytes, plain_to_bytes
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.explained import Background, ExplainedModel
from mlflow_cf.explainers import AnyExplainer, Learned, Learner
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.problem import Policy
from mlflow_cf.version import VERSION

SCHEMA_VERSION: Final = 1
MODEL: Final = "model"
FOLDER: Final = "counterfactual"
MANIFEST: Final = "manifest.json"
FEATURES: Final = "features.json"
POLICY: Final = "policy.yaml"
EXPLAINER: Final = "explainer.json"
BACKGROUND: Final = "background.parquet"
LABELS: Final = "labels.parquet"
# Of explainers that learn, and of no others; all else is as it was before there were any. So a version of mlflow-cf
# that knows of none reads every other artifact, and refuses these because of files it does not know.
ARRAYS: Final = "learned.npz"
PLAIN: Final = "learned.json"

Parsed = TypeVar("Parsed")

KIB: Final = 1024
MOST_BYTES: Final = {
    MANIFEST: 64 * KIB,
    FEATURES: 64 * KIB**2,
    POLICY: 256 * KIB,
    EXPLAINER: 64 * KIB,
    BACKGROUND: 512 * KIB**2,
    LABELS: 64 * KIB**2,
    ARRAYS: 256 * KIB**2,
    PLAIN: 16 * KIB**2,
}
REQUIRED: Final = (FEATURES, POLICY, EXPLAINER, BACKGROUND)
MOST_CELLS: Final = 32_000_000  # of a table once it is unpacked: 256 MB
DEEPEST: Final = 32  # levels of nesting in a policy
_AGAIN: Final = "log the explained model again, or fetch its artifact again"
# Left by MLflow where it downloads a model, and by Python where it imports one; no part of the model.
_NOT_OF_THE_MODEL: Final = ("registered_model_meta", "__pycache__")


@dataclass(frozen=True, eq=False)
class Parts:
    """What the folder holds: everything of an explained model but the model itself."""

    space: FeatureSpace
    background: Background
    policy: Policy
    explainer: AnyExplainer
    learned: Learned | None
    output: str | None


def write(root: Path, explained: ExplainedModel, output: str | None) -> str:
    """Write the folder into the model folder `root`, whose ``model/`` is complete; return the manifest's sha256.

    Raises:
        InputError: something is too large for an artifact, or labels of mixed types.
    """
    folder = root / FOLDER
    folder.mkdir()
    space, policy = explained.space, explained.policy
    (folder / FEATURES).write_bytes(_json_bytes(space.to_dict()))
    (folder / POLICY).write_bytes(yaml.safe_dump(policy.to_dict(), sort_keys=False, allow_unicode=True).encode())
    (folder / EXPLAINER).write_bytes(_json_bytes(explainer_to_dict(explained.explainer)))
    if explained.learned is not None:
        (folder / ARRAYS).write_bytes(arrays_to_bytes(explained.learned))
        (folder / PLAIN).write_bytes(plain_to_bytes(explained.learned))
    codes = explained.setting.background
    if codes.size > MOST_CELLS:
        raise InputError("data", f"has {len(codes):,} rows", f"sample {MOST_CELLS // len(space):,} of them at most")
    # Codes, not raw values: one type for every column, exact to the bit, and features.json turns them back.
    pq.write_table(pa.table({name: codes[:, column] for column, name in enumerate(space.names)}), folder / BACKGROUND)
    if explained.labels is not None:
        pq.write_table(pa.table({"label": _label_array(explained.labels)}), folder / LABELS)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "versions": {
            "mlflow-cf": VERSION,
            **{name: version(name) for name in ("mlflow", "numpy", "pandas")},
        },
        "output": output,
        "model_sha256": digest_of_model(root / MODEL),
        "files": {path.name: _fingerprint(path.read_bytes()) for path in sorted(folder.iterdir())},
    }
    content = _json_bytes(manifest)
    (folder / MANIFEST).write_bytes(content)
    for name, most in MOST_BYTES.items():
        if (folder / name).exists() and (size := (folder / name).stat().st_size) > most:
            raise InputError("data", f"{name} would have {size:,} bytes, at most {most:,}", "pass fewer rows or levels")
    return hashlib.sha256(content).hexdigest()


def read(root: Path, manifest_sha256: str) -> Parts:
    """Read the folder of the model folder `root`.

    Args:
        root: an MLflow model folder.
        manifest_sha256: digest of the manifest, as MLmodel has it.

    Raises:
        ArtifactError: anything missing, unknown, altered, too large or of another version.
    """
    folder = root / FOLDER
    manifest = _manifest(folder, manifest_sha256)
    content = {name: _checked(folder, name, manifest["files"][name]) for name in manifest["files"]}
    if digest_of_model(root / MODEL) != manifest["model_sha256"]:
        raise ArtifactError(MODEL, "is not the model that was explained", _AGAIN)
    space = _parsed(content, FEATURES, lambda raw: FeatureSpace.from_dict(json.loads(raw)))
    codes = _parsed(content, BACKGROUND, lambda raw: _codes(raw, space))
    rows = _parsed(content, BACKGROUND, lambda _: space.decode(codes))
    labels = _parsed(content, LABELS, lambda raw: _labels(raw, len(codes))) if LABELS in content else None
    policy = _parsed(content, POLICY, lambda raw: Policy.from_dict(_plain_yaml(raw)))
    explainer = _parsed(content, EXPLAINER, lambda raw: explainer_of(json.loads(raw)))
    background = Background(rows, labels, codes)
    return Parts(space, background, policy, explainer, _learned(content, explainer), manifest["output"])


def digest_of_model(folder: Path) -> str:
    """Return one sha256 over the names, sizes and bytes of all files below `folder`.

    Raises:
        ArtifactError: there is no such folder, or a link in it leads elsewhere.
    """
    if not folder.is_dir():
        raise ArtifactError(folder.name, "the folder of the model is missing", _AGAIN)
    digest = hashlib.sha256()
    # Sorted by what is hashed: paths themselves sort otherwise on Windows.
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        relative = path.relative_to(folder)
        if path.is_symlink():
            raise ArtifactError(f"{folder.name}/{relative.as_posix()}", "is a link, not a file", _AGAIN)
        if path.is_file() and not set(_NOT_OF_THE_MODEL) & set(relative.parts):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(_json_bytes([relative.as_posix(), path.stat().st_size, content]))
    return digest.hexdigest()


def _manifest(folder: Path, sha256: str) -> dict[str, Any]:
    raw = _read_bounded(folder, MANIFEST)
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise ArtifactError(_path(MANIFEST), "is not the manifest that MLmodel names", _AGAIN)
    with _reading(MANIFEST):
        manifest = json.loads(raw)
        found = manifest["schema_version"]
        if found != SCHEMA_VERSION:
            fix = "install the version of mlflow-cf that wrote it (MLmodel names it)"
            raise ArtifactError(_path(MANIFEST), f"schema version {found!r}, known is {SCHEMA_VERSION}", fix)
        files = manifest["files"]
        listed = all(isinstance(files[name], dict) for name in REQUIRED) and set(files) <= set(MOST_BYTES) - {MANIFEST}
        output = manifest["output"]
        if not listed or not isinstance(output, str | None) or not isinstance(manifest["model_sha256"], str):
            raise ValueError
    present = {path.name for path in folder.iterdir()} - {MANIFEST}
    if present != set(files):
        odd = min(present ^ set(files))
        fact = "is not in the manifest" if odd in present else "is missing"
        raise ArtifactError(_path(odd), fact, _AGAIN)
    return dict(manifest)


def _checked(folder: Path, name: str, expected: Any) -> bytes:
    raw = _read_bounded(folder, name)
    if _fingerprint(raw) != expected:
        raise ArtifactError(_path(name), "has other bytes than the manifest says", _AGAIN)
    return raw


def _read_bounded(folder: Path, name: str) -> bytes:
    path = folder / name
    if folder.is_symlink() or path.is_symlink() or not path.is_file():
        raise ArtifactError(_path(name), "is missing or not a file", _AGAIN)
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES[name] + 1)
    if len(raw) > MOST_BYTES[name]:
        raise ArtifactError(_path(name), f"is larger than {MOST_BYTES[name]:,} bytes", _AGAIN)
    return raw


def _parsed(content: dict[str, bytes], name: str, parse: Callable[[bytes], Parsed]) -> Parsed:
    with _reading(name):
        return parse(content[name])


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn whatever a parser raises into one error that tells the file but nothing of its content."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(_path(name), f"cannot be read ({type(error).__name__})", _AGAIN) from error


def _table(raw: bytes, names: tuple[str, ...], kind: pa.DataType | None) -> pa.Table:
    """Parse a parquet file with exactly these columns; its announced size is checked before it is unpacked."""
    file = pq.ParquetFile(pa.BufferReader(raw))
    schema = file.schema_arrow
    if schema.names != list(names) or (kind is not None and set(schema.types) != {kind}):
        raise ValueError
    if file.metadata.num_rows * len(names) > MOST_CELLS or not file.metadata.num_rows:
        raise ValueError
    return file.read()


def _codes(raw: bytes, space: FeatureSpace) -> Floats:
    table = _table(raw, space.names, pa.float64())
    return np.column_stack([column.to_numpy() for column in table.columns])


def _labels(raw: bytes, rows: int) -> NDArray[np.generic]:
    table = _table(raw, ("label",), None)
    if table.num_rows != rows or table.column(0).type not in (pa.bool_(), pa.int64(), pa.float64(), pa.string()):
        raise ValueError
    return np.asarray(table.column(0).to_pylist())


def _learned(content: dict[str, bytes], explainer: AnyExplainer) -> Learned | None:
    """Return what the explainer has learned; what is not there is not learned anew."""
    expected = {ARRAYS, PLAIN} if isinstance(explainer, Learner) else set()
    odd = {ARRAYS, PLAIN} & set(content) ^ expected
    if odd:
        fact = f"{'is missing for' if expected else 'is not for'} the explainer {explainer.name!r}"
        raise ArtifactError(_path(min(odd)), fact, "log the explained model again")
    if not expected:
        return None
    return _parsed(content, ARRAYS, lambda raw: learned_from_bytes(raw, content[PLAIN], MOST_CELLS))


def _label_array(labels: NDArray[np.generic]) -> pa.Array:
    try:
        return pa.array(labels.tolist())
    except pa.ArrowException as error:
        raise InputError("labels", "are of several types", "pass labels of one type") from error


def _plain_yaml(raw: bytes) -> Any:
    """Parse YAML without anchors and deep nesting: a page of either unfolds to gigabytes or minutes."""
    depth = 0
    for event in yaml.parse(raw, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
            raise ValueError
    return yaml.safe_load(raw)


def _fingerprint(raw: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1).encode()


def _path(name: str) -> str:
    return f"{FOLDER}/{name}"
