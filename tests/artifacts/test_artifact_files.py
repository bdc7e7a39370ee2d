"""The folder counterfactual/: exact to the bit, and refused as soon as one bit is another."""

import hashlib
import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mlflow_cf.artifact.format import files, tables
from mlflow_cf.artifact.format.mlmodel import Stated
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import assemble

ALL_TYPES = pd.DataFrame(
    {
        "int64": [1, 2, 3, 4],
        "int8": np.array([1, 2, 3, 4], dtype="int8"),
        "uint16": np.array([1, 2, 3, 65535], dtype="uint16"),
        "big": [2**53, 1, 2, 3],
        "float64": [0.1, 1e-300, 2.5, 1e15],
        "float32": np.array([0.1, 0.2, 3.0, 4.0], dtype="float32"),
        "holes": [1.0, np.nan, 2.5, 3.0],
        "Int64": pd.array([1, None, 3, 4], dtype="Int64"),
        "Float64": pd.array([1.5, None, 3, 4], dtype="Float64"),
        "bool": [True, False, True, True],
        "boolean": pd.array([True, None, False, True], dtype="boolean"),
        "object flag": pd.Series([True, None, False, True], dtype=object),
        "object": pd.Series(["a", None, "no", "1e5"], dtype=object),
        "mixed": pd.Series(["a", 1, 2, "a"], dtype=object),
        "string": pd.array(["a", None, "b", "c"], dtype="string"),
        "str": pd.Series(["a", "b", "é", "y"], dtype="str"),
        "category": pd.Categorical(["x", "y", "x", None]),
        "ordered": pd.Categorical(["low", "high", "low", "mid"], categories=["low", "mid", "high"], ordered=True),
        "of ints": pd.Categorical([3, 1, 3, 2]),
        "date": pd.to_datetime(["2024-02-29", None, "1969-12-31", "2524-01-01"]).as_unit("s"),
        "moment": pd.to_datetime(["2024-02-29T10:30:00.123456", "2024-01-01T00:00:00.000001", None, None]).as_unit(
            "us"
        ),
        "abroad": pd.to_datetime(["2024-02-29", None, "1969-12-31", "2024-01-01"]).tz_localize("Europe/Berlin"),
        "odd, 'name'": [1.5, 2.5, 3.5, 4.5],
    }
)


def model_of(column):
    """Return a model that says 1 where `column` is above its first value."""
    return OpenModel("test", (0, 1), lambda rows: (rows[column] > 1).astype(int).to_numpy())


FIELDS = "0" * 64  # the digest of the fields of an MLmodel that these folders do not have


def write(root, explained, output=None):
    return files.write(root, explained, output, FIELDS)


def read(root, digest):
    return files.read(root, Stated(digest, FIELDS))


def explained(frame, labels=None, **options):
    return assemble(model_of(frame.columns[0]), frame, labels, WrapOptions(**options))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a model folder and the digest of its manifest."""
    root = tmp_path_factory.mktemp("written")
    (root / "model" / "deep").mkdir(parents=True)
    (root / "model" / "MLmodel").write_text("flavors: {}\n")
    (root / "model" / "deep" / "weights.bin").write_bytes(bytes(range(256)))
    frame = ALL_TYPES[["int64", "float64", "str"]]
    options = {
        "constraints": {"immutable": ["str"], "ranges": {"int64": [0, 9]}},
        "explainer": "nearest_row",
        "seed": 7,
    }
    return root, write(root, explained(frame, ["no", "yes", "no", "yes"], **options))


@pytest.fixture
def copy(written, tmp_path):
    """Return a copy of the model folder to damage, and the digest of its manifest."""
    shutil.copytree(written[0], tmp_path / "copy")
    return tmp_path / "copy", written[1]


def refused(root, digest, word=""):
    with pytest.raises(ArtifactError) as caught:
        read(root, digest)
    assert word in caught.value.message
    return caught.value.message


def resealed(root):
    """Write a manifest that fits the files as they are now, and return its digest: what a forger would do."""
    manifest = json.loads((root / "counterfactual" / "manifest.json").read_text())
    for name in manifest["files"]:
        raw = (root / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    return sealed(root, manifest)


def sealed(root, manifest):
    raw = json.dumps(manifest).encode()
    (root / "counterfactual" / "manifest.json").write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()


def test_every_column_type_survives_exactly(tmp_path):
    (tmp_path / "model").mkdir()
    frame = ALL_TYPES.drop(columns="mixed")
    before = explained(frame)
    parts = read(tmp_path, write(tmp_path, before))
    pd.testing.assert_frame_equal(parts.background.rows, frame, check_exact=True)
    assert parts.background.labels is None
    assert parts.space.to_dict() == before.space.to_dict()


def test_levels_of_several_types_survive(tmp_path):
    (tmp_path / "model").mkdir()
    frame = ALL_TYPES[["int64", "mixed"]]
    parts = read(tmp_path, write(tmp_path, explained(frame)))
    pd.testing.assert_frame_equal(parts.background.rows, frame)
    assert [type(level) for level in parts.background.rows["mixed"]] == [str, int, int, str]


def test_policy_explainer_and_labels_survive(written):
    parts = read(*written)
    assert parts.policy.constraints.immutable == ("str",)
    assert (parts.policy.target.label, parts.policy.seed, parts.explainer.name) == (1, 7, "nearest_row")
    assert parts.background.labels.tolist() == ["no", "yes", "no", "yes"]


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [True, False, True, True], [0.5, 1.5, 2.0, 3.0], list("abca")])
def test_labels_keep_their_type(labels, tmp_path):
    (tmp_path / "model").mkdir()
    parts = read(tmp_path, write(tmp_path, explained(ALL_TYPES[["int64"]], labels)))
    assert parts.background.labels.tolist() == labels
    assert parts.background.labels.dtype == np.asarray(labels).dtype


@pytest.mark.parametrize("where", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_one_flipped_byte_in_any_file_is_found(copy, where):
    root, digest = copy
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        place = round(where * (len(raw) - 1))
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        refused(root, digest)
        path.write_bytes(raw)
    read(root, digest)


@pytest.mark.parametrize("damage", ["truncate", "empty", "append", "remove", "folder", "link"])
def test_other_damage_to_any_file_is_found(copy, damage, tmp_path):
    root, digest = copy
    (tmp_path / "elsewhere").write_text("{}")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        if damage in ("truncate", "empty", "append"):
            path.write_bytes({"truncate": raw[:-1], "empty": b"", "append": raw + b"\n"}[damage])
        else:
            path.unlink()
            if damage == "folder":
                path.mkdir()
            elif damage == "link":
                (tmp_path / "elsewhere").write_bytes(raw)  # even the same bytes: a link may lead anywhere
                path.symlink_to(tmp_path / "elsewhere")
        refused(root, digest)
        if damage == "folder":
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(raw)
    read(root, digest)


@pytest.mark.parametrize("name", ["extra.json", "__init__.py", "sub"])
def test_a_file_too_many_is_refused(copy, name):
    root, digest = copy
    (root / "counterfactual" / name).mkdir() if name == "sub" else (root / "counterfactual" / name).write_text("")
    refused(root, digest, f"counterfactual/{name}: is not in the manifest")


def test_missing_folders(tmp_path):
    refused(tmp_path, "", "counterfactual/manifest.json: is missing")
    (tmp_path / "counterfactual").symlink_to(tmp_path)
    refused(tmp_path, "", "counterfactual/manifest.json: is missing or not a file")


def test_what_mlflow_leaves_in_a_downloaded_model_does_not_matter(copy):
    root, digest = copy
    (root / "registered_model_meta").write_text("model_name: x\n")
    read(root, digest)
    (root / "model" / "registered_model_meta").write_text("model_name: x\n")
    refused(root, digest, "model/registered_model_meta: is not in the manifest")


class TestForgedManifests:
    """Files whose digests fit: the forger owns the whole folder, so what is left is to do no harm."""

    def test_another_version(self, copy):
        root, _ = copy
        manifest = json.loads((root / "counterfactual" / "manifest.json").read_text())
        for version in (0, 3, "1", None, True, 10**30):
            message = refused(root, sealed(root, {**manifest, "schema_version": version}), "schema version")
            assert "install the version" in message

    @pytest.mark.parametrize(
        "name",
        [
            "../outside.json",
            "/etc/passwd",
            "model/../../outside.json",
            "counterfactual/../MLmodel",
            "",
            "\0",
            "x" * 5000,
        ],
    )
    def test_names_of_files_never_come_from_a_file(self, copy, name):
        root, _ = copy
        (root.parent / "outside.json").write_text("{}")
        manifest = json.loads((root / "counterfactual" / "manifest.json").read_text())
        manifest["files"][name] = {"sha256": hashlib.sha256(b"{}").hexdigest(), "bytes": 2}
        refused(root, sealed(root, manifest), "is missing or not a file")
        manifest["files"] = {name: manifest["files"].pop("model/MLmodel")}
        refused(root, sealed(root, manifest))

    @pytest.mark.parametrize(
        "manifest", [[], None, 3, {}, {"schema_version": 1}, {"schema_version": 1, "files": [], "output": None}]
    )
    def test_manifests_of_another_shape(self, copy, manifest):
        refused(copy[0], sealed(copy[0], manifest), "counterfactual/manifest.json: cannot be read")

    @pytest.mark.parametrize(
        ("name", "raw"),
        [
            ("features.json", b"[" * 100_000),
            ("features.json", b'{"features": [{"name": "x"}]}'),
            ("features.json", b'{"features": 1e999}'),
            ("features.json", b"\xff\xfe"),
            ("explainer.json", b'{"name": "geco", "options": {"q": -1}}'),
            ("explainer.json", b'{"name": "os.system", "options": {}}'),
            ("policy.yaml", b"!!python/object/apply:os.system ['true']"),
            ("policy.yaml", b"a: &a [1]\nb: *a\n"),
            ("policy.yaml", b"target: {label: 1, unknown: 2}"),
            ("policy.yaml", b"{" * 5_000),
            ("background.parquet", b"PAR1" + b"\0" * 100 + b"PAR1"),
            ("labels.parquet", b""),
        ],
    )
    def test_content_that_cannot_be_read(self, copy, name, raw):
        root, _ = copy
        (root / "counterfactual" / name).write_bytes(raw)
        refused(root, resealed(root), f"counterfactual/{name}: cannot be read")

    @pytest.mark.parametrize(
        "table",
        [
            pa.table({"int64": [1.0], "float64": [1.0]}),
            pa.table({"int64": [1.0], "float64": [1.0], "str": ["x"]}),
            pa.table({"int64": [1.0], "float64": [1.0], "str": [0.0], "more": [1.0]}),
            pa.table({name: pa.array([], pa.float64()) for name in ("int64", "float64", "str")}),
        ],
    )
    def test_a_background_that_does_not_fit_the_features(self, copy, table):
        root, _ = copy
        pq.write_table(table, root / "counterfactual" / "background.parquet")
        refused(root, resealed(root), "background.parquet: cannot be read")

    def test_labels_for_other_rows(self, copy):
        root, _ = copy
        pq.write_table(pa.table({"label": [1, 0]}), root / "counterfactual" / "labels.parquet")
        refused(root, resealed(root), "labels.parquet: cannot be read")

    def test_a_table_that_unpacks_to_too_much(self, copy, monkeypatch):
        root, _ = copy
        rows = pa.array(np.zeros(100_000))
        pq.write_table(
            pa.table(dict.fromkeys(("int64", "float64", "str"), rows)),
            root / "counterfactual" / "background.parquet",
        )
        assert (root / "counterfactual" / "background.parquet").stat().st_size < 10_000
        monkeypatch.setattr(tables, "MOST_CELLS", 200_000)
        refused(root, resealed(root), "background.parquet: cannot be read")

    @pytest.mark.parametrize("write", [tables.write_codes, pq.write_table])
    def test_a_forged_footer_is_read_or_refused_and_never_ends_the_process(self, tmp_path, write):
        names, path = ("int64", "float64", "str"), tmp_path / "background.parquet"
        codes = np.arange(30.0).reshape(10, 3)
        if write is tables.write_codes:
            tables.write_codes(path, codes, names)
        else:
            pq.write_table(pa.table(dict(zip(names, codes.T, strict=True))), path)
        raw, refusals = path.read_bytes(), 0
        footer = range(len(raw) - 8 - int.from_bytes(raw[-8:-4], "little"), len(raw))
        for place, bit in itertools.product(footer, range(8)):
            forged = raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]
            try:
                assert tables.read_codes(forged, names, 10, tables.COMPRESSED).shape == codes.shape
            except (ValueError, OSError, pa.ArrowException):
                refusals += 1
        assert 4 * len(footer) < refusals < 8 * len(footer)

    @pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy"])
    def test_what_is_compressed_is_refused_before_it_is_unpacked(self, tmp_path, codec):
        path, rows = tmp_path / "background.parquet", np.zeros(2_000_000)
        pq.write_table(pa.table({"a": rows}), path, compression=codec, use_dictionary=False, data_page_size=2**30)
        own, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
        pa.set_memory_pool(pool)
        try:
            with pytest.raises(ValueError, match="packed otherwise"):
                tables.read_codes(bytes(rows.nbytes) + path.read_bytes(), ("a",), len(rows), tables.AS_IT_IS)
        finally:
            pa.set_memory_pool(own)
        assert pool.max_memory() < 100_000

    def test_a_file_that_is_too_large_is_not_even_read(self, copy):
        root, digest = copy
        with (root / "counterfactual" / "policy.yaml").open("ab") as file:
            file.truncate(10 * 2**30)  # sparse: 10 GiB that take no room
        refused(root, digest, "policy.yaml: has other bytes")
        manifest = json.loads((root / "counterfactual" / "manifest.json").read_text())
        manifest["files"]["counterfactual/policy.yaml"]["bytes"] = 10 * 2**30 + 1
        with (root / "counterfactual" / "policy.yaml").open("ab") as file:
            file.truncate(10 * 2**30 + 1)
        refused(root, sealed(root, manifest), "policy.yaml: is larger than")


class TestWriting:
    def test_only_plain_files_and_plain_formats(self, written):
        folder = written[0] / "counterfactual"
        assert {path.name for path in folder.iterdir()} == {
            "manifest.json",
            "features.json",
            "policy.yaml",
            "explainer.json",
            "background.parquet",
            "labels.parquet",
        }
        policy = yaml.safe_load((folder / "policy.yaml").read_text())
        assert policy["constraints"]["immutable"] == ["str"]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["versions"]["mlflow-cf"]
        assert "pandas" not in (pq.read_schema(folder / "background.parquet").metadata or {})

    def test_two_writings_are_the_same(self, tmp_path):
        (tmp_path / "model").mkdir()
        one = write(tmp_path, explained(ALL_TYPES[["int64"]]), None)
        shutil.rmtree(tmp_path / "counterfactual")
        assert write(tmp_path, explained(ALL_TYPES[["int64"]])) == one

    def test_labels_of_mixed_types(self, tmp_path):
        (tmp_path / "model").mkdir()
        with pytest.raises(InputError, match="labels: are of several types"):
            write(tmp_path, explained(ALL_TYPES[["int64"]], np.array([1, "a", 2, 3], dtype=object)), None)

    def test_too_large_for_an_artifact(self, tmp_path, monkeypatch):
        (tmp_path / "model").mkdir()
        monkeypatch.setitem(files.MOST_BYTES, files.FEATURES, 10)
        with pytest.raises(InputError, match=r"features.json would have .* bytes"):
            write(tmp_path, explained(ALL_TYPES[["int64"]]), None)
        shutil.rmtree(tmp_path / "counterfactual")
        monkeypatch.setattr(tables, "MOST_CELLS", 3)
        with pytest.raises(InputError, match="sample 3 of them at most"):
            write(tmp_path, explained(ALL_TYPES[["int64"]]), None)
