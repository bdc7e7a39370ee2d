"""The folder ``counterfactual/`` of a saved model: written once, read only after every byte has been checked.

File names are constants of this module; none is ever read from a file. What is read first is MLmodel, which names the
digest of `manifest.json`, then that, then name, size and digest of every other file, and only then are they parsed.
Nothing is pickled but Python functions, if there are some (`pickled`), and nothing is unpickled here.

What was learned is the bytes of two files, ``.npz`` for arrays and ``.json`` for the rest. The archive holds
uncompressed .npy files and nothing else, so its size bounds what it unpacks to; every header is checked before any
array is made. Neither file can hold code.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pandas as pd
import yaml
from numpy.lib import format as npy

from mlflow_cf.artifact.format import manifest, pickled, tables
from mlflow_cf.artifact.format.manifest import FOLDER, Manifest
from mlflow_cf.artifact.format.mlmodel import Stated, altered
from mlflow_cf.artifact.format.pickled import FUNCTIONS
from mlflow_cf.artifact.format.plain import json_bytes, plain_yaml, read_bounded, reading, sha256_of
from mlflow_cf.causal.function import by_equation, of_equations, structural_functions
from mlflow_cf.causal.opened import Arrays
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer, Learned, learns
from mlflow_cf.explainers.explainer import KINDS, NAME
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.features import BackgroundRows, FeatureSpace, Floats
from mlflow_cf.metrics.plausibility_model import Plausibility
from mlflow_cf.policy import Policy
from mlflow_cf.structures import Structure
from mlflow_cf.survival import FutureModels
from mlflow_cf.survival.stored import from_arrays, to_arrays

FEATURES: Final = f"{FOLDER}/features.json"
POLICY: Final = f"{FOLDER}/policy.yaml"
EXPLAINER: Final = f"{FOLDER}/explainer.json"
BACKGROUND: Final = f"{FOLDER}/background.parquet"
LABELS: Final = f"{FOLDER}/labels.parquet"
# Of explainers that learn, and of no others.
ARRAYS: Final = f"{FOLDER}/learned.npz"
PLAIN: Final = f"{FOLDER}/learned.json"
# Of policies that ask for plausible answers, and of no others.
PLAUSIBLE_ARRAYS: Final = f"{FOLDER}/plausible.npz"
PLAUSIBLE_PLAIN: Final = f"{FOLDER}/plausible.json"
# Of policies with retrained models, under which answers must hold, and of no others.
SURVIVAL_ARRAYS: Final = f"{FOLDER}/survival.npz"
SURVIVAL_PLAIN: Final = f"{FOLDER}/survival.json"
# Of policies with causal functions that were learned, and of no others.
CAUSAL_ARRAYS: Final = f"{FOLDER}/causal.npz"
CAUSAL_PLAIN: Final = f"{FOLDER}/causal.json"

Parsed = TypeVar("Parsed")

KIB: Final = 1024
MOST_BYTES: Final = {
    FEATURES: 8 * KIB**2,
    POLICY: 256 * KIB,
    EXPLAINER: 64 * KIB,
    BACKGROUND: 512 * KIB**2,
    LABELS: 64 * KIB**2,
    ARRAYS: 256 * KIB**2,
    PLAIN: 8 * KIB**2,
    PLAUSIBLE_ARRAYS: 256 * KIB**2,
    PLAUSIBLE_PLAIN: 64 * KIB,
    SURVIVAL_ARRAYS: 256 * KIB**2,
    SURVIVAL_PLAIN: 64 * KIB,
    CAUSAL_ARRAYS: 64 * KIB**2,
    CAUSAL_PLAIN: 64 * KIB,
    FUNCTIONS: pickled.MOST_BYTES,  # of policies with Python functions, and of no others
}
REQUIRED: Final = (FEATURES, POLICY, EXPLAINER, BACKGROUND)


@dataclass(frozen=True, eq=False)
class FolderContents:
    """What the folder holds: everything of an explained model but the model itself.

    Python functions of the policy are stand-ins; `functions` is the file that has them.
    """

    manifest: Manifest
    space: FeatureSpace
    background: BackgroundRows
    codes: Floats
    policy: Policy
    explainer: AnyExplainer
    learned: Learned | None
    plausibility: Plausibility | None
    future: tuple[Structure, str] | None
    causal: tuple[Arrays, ...]
    functions: bytes | None


def write(root: Path, explained: ExplainedModel, output: str | None, fields_sha256: str) -> str:
    """Write the folder into the model folder `root`, whose other files are complete; return the manifest's sha256.

    Raises:
        InputError: something is too large for an artifact, or labels of mixed types.
    """
    (root / FOLDER).mkdir()
    space = explained.space
    (root / FEATURES).write_bytes(json_bytes(space.to_dict()))
    policy = yaml.safe_dump(explained.policy.to_dict(), sort_keys=False, allow_unicode=True)
    (root / POLICY).write_bytes(policy.encode())
    (root / EXPLAINER).write_bytes(json_bytes(explainer_to_dict(explained.explainer)))
    plausibility, causal = explained.extra_models.plausibility, by_equation(explained.bound_policy.functions)
    future = explained.extra_models.future
    for names, kept in (
        ((ARRAYS, PLAIN), explained.learned),
        ((PLAUSIBLE_ARRAYS, PLAUSIBLE_PLAIN), None if plausibility is None else Learned(plausibility.arrays)),
        ((SURVIVAL_ARRAYS, SURVIVAL_PLAIN), None if future is None else _stored_future(future, space)),
        ((CAUSAL_ARRAYS, CAUSAL_PLAIN), Learned(causal) if causal else None),
    ):
        if kept is not None:
            (root / names[0]).write_bytes(arrays_to_bytes(kept))
            (root / names[1]).write_bytes(plain_to_bytes(kept))
    if functions := pickled.functions_of(explained.policy.constraints):
        (root / FUNCTIONS).write_bytes(pickled.to_bytes(functions))
    # Codes, not raw values: features.json turns them back.
    tables.write_codes(root / BACKGROUND, explained.bound_policy.background, space.names)
    if explained.labels is not None:
        tables.write_labels(root / LABELS, explained.labels)
    for name, most in MOST_BYTES.items():
        if (root / name).exists() and (size := (root / name).stat().st_size) > most:
            raise InputError("data", f"{name} would have {size:,} bytes, at most {most:,}", "pass fewer rows or levels")
    return manifest.write(root, output, len(explained.background), fields_sha256)


def read(root: Path, stated: Stated) -> FolderContents:
    """Read the folder of the model folder `root`, whose MLmodel has `stated`; the model inside is checked, not opened.

    Raises:
        ArtifactError: anything missing, unknown, altered, too large or of another version.
    """
    sealed = manifest.read(root, stated)
    ours = [name for name in sealed.files if name.startswith(f"{FOLDER}/")]
    odd = set(ours) - set(MOST_BYTES) | set(REQUIRED) - set(ours)
    if odd:
        raise ArtifactError(manifest.MANIFEST, "cannot be read (other files than an explained model has)")
    content = {name: _checked(root, name, sealed) for name in ours}
    manifest.check_bytes(root, sealed)
    packing = tables.AS_IT_IS if sealed.rows is not None else tables.COMPRESSED
    space = _parsed(content, FEATURES, lambda raw: FeatureSpace.from_dict(json.loads(raw)))
    codes = _parsed(content, BACKGROUND, lambda raw: tables.read_codes(raw, space.names, sealed.rows, packing))
    rows = _parsed(content, BACKGROUND, lambda _: _decoded(space, codes))
    labels = None
    if LABELS in content:
        labels = _parsed(content, LABELS, lambda raw: tables.read_labels(raw, len(codes), packing))
    policy = _parsed(content, POLICY, lambda raw: Policy.from_dict(pickled.without_functions(plain_yaml(raw))))
    explainer = _parsed(content, EXPLAINER, lambda raw: explainer_of(json.loads(raw)))
    background = BackgroundRows(rows, labels, codes)
    learned = _stored(content, (ARRAYS, PLAIN), f"the explainer {explainer.name!r}", expected=learns(explainer))
    plausibility, causal = _plausibility(content, policy, space, codes), _causal(content, policy, space, codes)
    expected = bool(pickled.functions_of(policy.constraints))
    _check_stored(content, (FUNCTIONS,), "the policy", expected=expected)
    functions = content.get(FUNCTIONS)
    future = _future(content, policy, space)
    return FolderContents(
        sealed, space, background, codes, policy, explainer, learned, plausibility, future, causal, functions
    )


def _checked(root: Path, name: str, sealed: Manifest) -> bytes:
    raw = read_bounded(root, name, MOST_BYTES[name])
    if sealed.files[name] != {"sha256": sha256_of(raw), "bytes": len(raw)}:
        raise altered(name)
    return raw


def _parsed(content: Mapping[str, bytes], name: str, parse: Callable[[bytes], Parsed]) -> Parsed:
    with reading(name):
        return parse(content[name])


def _decoded(space: FeatureSpace, codes: Floats) -> pd.DataFrame:
    """Return the rows of codes (m, d), each of which must be the code of a value of its feature."""
    with np.errstate(invalid="raise"):
        rows, exact = space.decode_exactly(codes)
    if not exact.all():
        raise ValueError
    return rows


def _plausibility(
    content: Mapping[str, bytes], policy: Policy, space: FeatureSpace, codes: Floats
) -> Plausibility | None:
    """Return what was learned of how the background looks."""
    stored = (PLAUSIBLE_ARRAYS, PLAUSIBLE_PLAIN)
    found = _stored(content, stored, "the policy", expected=policy.plausible is not None)
    if found is None or policy.plausible is None:
        return None
    with reading(PLAUSIBLE_ARRAYS):
        return Plausibility.learn(policy.plausible.method, space, codes, found.arrays)


def _stored_future(future: FutureModels, space: FeatureSpace) -> Learned:
    """Return what is kept of the models that retraining may give."""
    arrays, plain = to_arrays(future.structure, space)
    return Learned(arrays, {**plain, "note": future.note})


def _future(content: Mapping[str, bytes], policy: Policy, space: FeatureSpace) -> tuple[Structure, str] | None:
    """Return the models that retraining may give, as one structure, and what is said of them."""
    stored = (SURVIVAL_ARRAYS, SURVIVAL_PLAIN)
    found = _stored(content, stored, "the policy", expected=policy.survival is not None)
    if found is None or policy.survival is None:
        return None
    with reading(SURVIVAL_ARRAYS):
        if not isinstance(note := found.plain["note"], str):
            raise TypeError("a note that is no text")
        return from_arrays(found.arrays, found.plain, space, policy.survival.of), note


def _causal(content: Mapping[str, bytes], policy: Policy, space: FeatureSpace, codes: Floats) -> tuple[Arrays, ...]:
    """Return what was learned of which number follows which."""
    expected = [number for number, equation in enumerate(policy.constraints.causal) if equation.model is not None]
    found = _stored(content, (CAUSAL_ARRAYS, CAUSAL_PLAIN), "the policy", expected=bool(expected))
    if found is None:
        return ()
    with reading(CAUSAL_ARRAYS):
        kept = of_equations(found.arrays, expected)
        structural_functions(policy.constraints, space, codes, kept)  # those of other features are none
        return kept


def _stored(content: Mapping[str, bytes], names: tuple[str, str], owner: str, *, expected: bool) -> Learned | None:
    """Return what an owner has learned, of the files `names`; what is not there is not learned anew."""
    _check_stored(content, names, owner, expected=expected)
    if not expected:
        return None
    return _parsed(content, names[0], lambda raw: learned_from_bytes(raw, content[names[1]], tables.MOST_CELLS))


def _check_stored(content: Mapping[str, bytes], names: tuple[str, ...], owner: str, *, expected: bool) -> None:
    """Refuse files of what was learned where they are missing for their owner, or not for it."""
    odd = set(names) & set(content) ^ (set(names) if expected else set())
    if odd:
        fact = f"{'is missing for' if expected else 'is not for'} {owner}"
        raise ArtifactError(min(odd), fact, "log the explained model again")


MOST_ARRAYS: Final = 256
SUFFIX: Final = ".npy"
# of an archive's member and of a header: not encrypted, no flag but the one for names in UTF-8
PLAIN_FLAGS: Final = (0, 0x800)
HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def arrays_to_bytes(learned: Learned) -> bytes:
    """Return the archive of all arrays; the same arrays give the same bytes."""
    file = BytesIO()
    np.savez(file, allow_pickle=False, **{name: learned.arrays[name] for name in sorted(learned.arrays)})
    return file.getvalue()


def plain_to_bytes(learned: Learned) -> bytes:
    """Return the JSON values, and the names of the arrays that belong to them."""
    return json_bytes({"arrays": sorted(learned.arrays), "plain": learned.plain})


def learned_from_bytes(archive: bytes, plain: bytes, most_cells: int) -> Learned:
    """Return what was learned, bit for bit, of the content of both files; all arrays have at most `most_cells`.

    Raises:
        ValueError, KeyError, TypeError, zipfile.BadZipFile: files that `arrays_to_bytes` and `plain_to_bytes` did not
            write, or too many cells.
    """
    content = json.loads(plain)
    names = content["arrays"]
    if set(content) != {"arrays", "plain"} or not all(NAME.fullmatch(name) for name in names):
        raise ValueError("other keys, or names that are none")
    with zipfile.ZipFile(BytesIO(archive)) as file:
        _check(file, names, most_cells)
    with np.load(BytesIO(archive), allow_pickle=False) as arrays:
        return Learned({name: arrays[name] for name in names}, content["plain"])


def _check(archive: zipfile.ZipFile, names: list[str], most_cells: int) -> None:
    """Refuse members that are not exactly these arrays, stored as they are; headers say what each file holds."""
    members = archive.infolist()
    if len(members) > MOST_ARRAYS or sorted(member.filename for member in members) != sorted(n + SUFFIX for n in names):
        raise ValueError("other arrays than named")
    cells = 0
    for member in members:
        stored = member.compress_type == zipfile.ZIP_STORED and member.flag_bits in PLAIN_FLAGS
        if not stored or member.file_size != member.compress_size:
            raise ValueError("an array that is not stored as it is")
        with archive.open(member) as file:
            shape, _, dtype = HEADERS[npy.read_magic(file)](file)
            size = member.file_size - file.tell()
        count = math.prod(shape)
        if dtype.kind not in KINDS or dtype.itemsize * count != size:
            raise ValueError("an array of another type, or of another size than its file")
        cells += max(count, 1)
        if cells > most_cells:
            raise ValueError(f"more than {most_cells} cells")
