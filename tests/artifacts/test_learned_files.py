"""What an explainer has learned, on disk: the same to the bit, and nothing is unpacked that was not checked."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from test_artifact_files import read, refused, resealed, write

from mlflow_cf.artifact.format import files
from mlflow_cf.artifact.format import files as module
from mlflow_cf.artifact.format.files import arrays_to_bytes, learned_from_bytes, plain_to_bytes
from mlflow_cf.errors import ArtifactError
from mlflow_cf.explainers import EXPLAINERS, Candidates, Learned, NearestRow
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame({"a": [1, 2, 3, 4]})
MOST = 1000
STATE = Learned({"edges": np.array([[0.1, np.nan], [-0.0, np.inf]]), "names": np.array(["é", "b"])}, {"k": [1, None]})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
arrays = some.arrays(
    st.one_of(
        some.boolean_dtypes(),
        some.integer_dtypes(),
        some.unsigned_integer_dtypes(),
        some.floating_dtypes(),
        some.unicode_string_dtypes(),
    ),
    some.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(
    st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), arrays, max_size=4),
    st.dictionaries(st.text(), json_values, max_size=4),
)
def test_there_and_back_bit_for_bit(arrays: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    before = Learned(arrays, plain)
    after = learned_from_bytes(arrays_to_bytes(before), plain_to_bytes(before), MOST)
    assert set(after.arrays) == set(arrays)
    for name, array in arrays.items():
        for kept in (before.arrays[name], after.arrays[name]):
            assert (kept.dtype, kept.shape, kept.tobytes()) == (array.dtype, array.shape, array.tobytes())
            assert not kept.flags.writeable
    assert (json.dumps(after.plain), after.plain) == (json.dumps(before.plain), before.plain)
    assert arrays_to_bytes(after) == arrays_to_bytes(before)


def archive(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)
    return raw.getvalue()


def npy(array: np.ndarray, **options: Any) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array, **options)
    return raw.getvalue()


def header(shape: str, dtype: str = "<f8", data: bytes = b"") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


ONE = npy(np.zeros(3))
NAMED = b'{"arrays": ["x"], "plain": {}}'
BAD = {
    "no archive": b"PK\x03\x04 or not",
    "empty": b"",
    "objects": archive(x__npy=npy(np.array([{}], dtype=object), allow_pickle=True)),
    "structured": archive(x__npy=npy(np.zeros(2, dtype=[("f", "f8")]))),
    "dates": archive(x__npy=npy(np.zeros(2, dtype="M8[s]"))),
    "a pickle": archive(x__npy=b"\x80\x04K\x01."),
    "another name": archive(y__npy=ONE),
    "a path": archive(**{"../x__npy": ONE}),
    "one too many": archive(x__npy=ONE, y__npy=ONE),
    "no array": archive(),
    "another suffix": archive(x__pkl=ONE),
    "compressed": archive(zipfile.ZIP_DEFLATED, x__npy=npy(np.zeros(10**5))),
    "a huge shape": archive(x__npy=header("(1000000000000,)")),
    "a huge shape of nothing": archive(x__npy=header("(1000000000000,)", "<U0")),
    "more rows than there are": archive(x__npy=header("(4,)", data=bytes(24))),
    "fewer rows than there are": archive(x__npy=header("(2,)", data=bytes(24))),
    "a negative shape": archive(x__npy=header("(-1,)", data=bytes(8))),
    "code for a shape": archive(x__npy=header("__import__('os').getcwd()")),
    "too many cells": archive(x__npy=npy(np.zeros(MOST + 1))),
}


@pytest.mark.parametrize("name", BAD)
def test_archives_that_are_refused(name: str) -> None:
    assert learned_from_bytes(archive(x__npy=ONE), NAMED, MOST).arrays["x"].tolist() == [0, 0, 0]
    with pytest.raises((ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError)):
        learned_from_bytes(BAD[name], NAMED, MOST)


def test_no_array_is_made_before_all_are_checked(monkeypatch) -> None:
    monkeypatch.setattr(module.np, "load", lambda *_, **__: pytest.fail("unpacked"))
    for raw in BAD.values():
        with pytest.raises((ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError)):
            learned_from_bytes(raw, NAMED, MOST)


def test_many_small_arrays_of_nothing() -> None:
    names = [f"x{number}" for number in range(module.MOST_ARRAYS + 1)]
    raw = archive(**{f"{name}__npy": npy(np.zeros(0)) for name in names})
    with pytest.raises(ValueError, match="other arrays than named"):
        learned_from_bytes(raw, json.dumps({"arrays": names, "plain": {}}).encode(), MOST)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"[]",
        b"null",
        b'{"arrays": ["x"]}',
        b'{"arrays": [3], "plain": {}}',
        b'{"arrays": ["x", "x"], "plain": {}}',
        b'{"arrays": ["x"], "plain": {"k": NaN}}',
        b'{"arrays": ["x"], "plain": {}, "more": 1}',
        b'{"arrays": ["x"], "plain": 3}',
        b'{"arrays": ["x"], "plain": ' + b"[" * 10**5,
    ],
)
def test_plain_values_that_are_refused(plain: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, RecursionError)):
        learned_from_bytes(archive(x__npy=ONE), plain, MOST)


# --- in the folder of a model


@dataclass(frozen=True)
class Taught:
    name: ClassVar[str] = "taught"
    polish: ClassVar[bool] = False

    def learn(self, _facts: Any) -> Learned:
        return STATE

    def bound(self, _learned: Learned) -> Any:
        return lambda problem, *_: Candidates(problem.background[:0])


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a written model folder, and the digest of its manifest."""
    monkeypatch.setitem(EXPLAINERS, "taught", Taught)
    (tmp_path / "model").mkdir()
    return tmp_path, write(tmp_path, explained(Taught()))


def explained(explainer: Any) -> Any:
    model = OpenModel("test", (0, 1), lambda rows: (rows["a"] > 1).astype(int).to_numpy())
    return assemble(model, FRAME, None, WrapOptions(explainer=explainer))


def test_written_and_read(root):
    folder, digest = root
    assert {"learned.npz", "learned.json"} <= {path.name for path in (folder / "counterfactual").iterdir()}
    learned = read(folder, digest).learned
    assert plain_to_bytes(learned) == plain_to_bytes(STATE)
    assert arrays_to_bytes(learned) == arrays_to_bytes(STATE)


@pytest.mark.parametrize("name", ["learned.npz", "learned.json"])
@pytest.mark.parametrize("where", [0.0, 0.4, 1.0])
def test_one_flipped_byte_is_found(root, name, where):
    path = root[0] / "counterfactual" / name
    raw = path.read_bytes()
    place = round(where * (len(raw) - 1))
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    refused(*root, f"counterfactual/{name}: has other bytes")


def test_forged_files_tell_nothing_of_their_content(root):
    folder, _ = root
    (folder / "counterfactual" / "learned.npz").write_bytes(BAD["objects"])
    refused(folder, resealed(folder), "counterfactual/learned.npz: cannot be read (ValueError)")


def test_what_is_missing_is_not_learned_anew(root, monkeypatch):
    folder, _ = root
    (folder / "counterfactual" / "learned.json").unlink()
    manifest = json.loads((folder / "counterfactual" / "manifest.json").read_text())
    del manifest["files"]["counterfactual/learned.json"]
    (folder / "counterfactual" / "manifest.json").write_text(json.dumps(manifest))
    refused(folder, resealed(folder), "counterfactual/learned.json: is missing for the explainer 'taught'; log the")


def test_nothing_is_learned_for_an_explainer_that_does_not_learn(root):
    folder, _ = root
    (folder / "counterfactual" / "explainer.json").write_text('{"name": "nearest_row", "options": {}}')
    refused(folder, resealed(folder), "is not for the explainer 'nearest_row'")


def test_too_large_to_be_read(root, monkeypatch):
    monkeypatch.setitem(files.MOST_BYTES, files.ARRAYS, 10)
    refused(*root, "learned.npz: is larger than 10 bytes")


def test_others_have_no_such_files(tmp_path):
    (tmp_path / "model").mkdir()
    parts = read(tmp_path, write(tmp_path, explained(NearestRow())))
    assert parts.learned is None
    assert not list((tmp_path / "counterfactual").glob("learned.*"))


def test_the_error_is_one_of_artifacts(root):
    with pytest.raises(ArtifactError):
        read(root[0], "0" * 64)
