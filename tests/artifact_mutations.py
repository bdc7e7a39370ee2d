"""Damaged and forged artifacts: one saved model, and many ways to spoil a copy of it.

Damage leaves the digests as they were. A forger rewrites them all: what is forged may load, if it is an artifact that
somebody could have logged, but it must be cheap to refuse and must never run anything.
"""

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import small_loans
import yaml

import mlflow_cf
from mlflow_cf.artifact.format.mlmodel import ASSIGNED, fields_sha256

OURS = ("features.json", "policy.yaml", "explainer.json", "background.parquet", "labels.parquet")
RUN = "RUN"  # name of the file that code writes if it is run
CODE = f"from pathlib import Path\nPath({RUN!r}).write_text('run')\n"
COMMAND = f"touch {RUN}"


@dataclass(frozen=True)
class Mutation:
    """One way to spoil an artifact: what it is called, how it is done, and whether it may load all the same."""

    name: str
    apply: Callable[[Path], None]
    may_load: bool = False


def saved(folder: Path) -> Path:
    """Save a small explained model with code of its own in `folder` and return its path."""
    table = small_loans.table()
    package = folder / "loans_code"
    package.mkdir()
    (package / "__init__.py").write_text("RATE = 3\n")
    (package / "rates.py").write_text("RATE = 4\n")
    trusted = {"skops_trusted_types": ["numpy.dtype"], "pip_requirements": ["scikit-learn", "skops"]}
    mlflow.sklearn.save_model(small_loans.fitted(table), folder / "plain", code_paths=[str(package)], **trusted)
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS}
    mlflow_cf.save_model(folder / "plain", folder / "saved", table, small_loans.labels(table), **options)
    return folder / "saved"


def reseal(root: Path) -> None:
    """Rewrite every digest, so that the artifact holds together as it is now."""
    path = root / "counterfactual" / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in manifest["files"]:
        raw = (root / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    seal(root, manifest)


def seal(root: Path, manifest: object) -> None:
    """Write this manifest, and let MLmodel name it."""
    raw = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    (root / "counterfactual" / "manifest.json").write_bytes(raw)
    fields = yaml.safe_load((root / "MLmodel").read_text())
    fields["flavors"]["mlflow_cf"]["manifest_sha256"] = hashlib.sha256(raw).hexdigest()
    (root / "MLmodel").write_text(yaml.safe_dump(fields))


def forged(name: str, raw: bytes) -> Callable[[Path], None]:
    """Return a mutation that writes a file of ours anew, digests and all."""

    def apply(root: Path) -> None:
        (root / "counterfactual" / name).write_bytes(raw)
        reseal(root)

    return apply


# --- damage by chance


def names(root: Path) -> list[str]:
    return small_loans.files(root)


def random_damage(rng: np.random.Generator, root: Path) -> Mutation:
    """Return a random mutation of one of the files below `root`."""
    every = names(root)
    name = str(rng.choice(every))
    size = (root / name).stat().st_size
    kind = str(rng.choice(["flip", "flip", "flip", "truncate", "append", "swap", "remove", "extra", "forge", "forge"]))
    if kind == "swap":
        other = str(rng.choice([one for one in every if one != name]))
        same = (root / name).read_bytes() == (root / other).read_bytes()
        return Mutation(f"swap {name} and {other}", lambda root: swap(root, name, other), same)
    if kind == "extra":
        extra = f"{name}{rng.choice(['.bak', '~', '.pyc', '.py'])}"
        return Mutation(f"extra {extra}", lambda root: written(root / extra, CODE))
    if kind == "forge":
        name = f"counterfactual/{rng.choice(OURS)}"
        flips = rng.integers(0, 8 * (root / name).stat().st_size, int(rng.integers(1, 9))).tolist()
        return Mutation(f"forge {name} {flips}", lambda root: flip_and_reseal(root, name, flips), True)
    place = int(rng.integers(8 * size)) if size else 0
    changes: dict[str, Callable[[Path], None]] = {
        "flip": lambda root: flip(root, name, [place]),
        "truncate": lambda root: os.truncate(root / name, place // 8),
        "append": lambda root: os.truncate(root / name, size + 1),
        "remove": lambda root: (root / name).unlink(),
    }
    return Mutation(f"{kind} {name} at {place}", changes[kind], name == "MLmodel")


def flip(root: Path, name: str, places: list[int]) -> None:
    raw = bytearray((root / name).read_bytes())
    for place in places if raw else ():
        raw[place // 8] ^= 1 << place % 8
    (root / name).write_bytes(raw)


def flip_and_reseal(root: Path, name: str, places: list[int]) -> None:
    flip(root, name, places)
    reseal(root)


def swap(root: Path, one: str, other: str) -> None:
    first, second = (root / one).read_bytes(), (root / other).read_bytes()
    (root / one).write_bytes(second)
    (root / other).write_bytes(first)


# --- damage on purpose


def chosen() -> Iterator[Mutation]:
    """Yield attacks that somebody would try."""
    yield from extra_files()
    yield from manifests()
    yield from mlmodels()
    yield from texts()
    yield from tables()


def extra_files() -> Iterator[Mutation]:
    places = ("", "model/", "model/code/", "model/code/loans_code/", "counterfactual/", "wheels/", "metadata/")
    for place in places:
        for name in ("__pycache__/loans_code.cpython-311.pyc", "mlflow_cf.py", "rates.pyc", "x/y/z.bin"):
            yield Mutation(f"extra {place}{name}", lambda root, name=place + name: written(root / name, CODE))
        yield Mutation(f"link {place}", lambda root, name=place: linked(root / name / "link", Path("/etc/hostname")))
        yield Mutation(f"folder {place}", lambda root, name=place: (root / name / "empty").mkdir(parents=True))
    for name in (
        "MLmodel",
        "requirements.txt",
        "model/MLmodel",
        "counterfactual/policy.yaml",
        "model",
        "counterfactual",
    ):
        yield Mutation(f"{name} is a link", moved_and_linked(name))
    yield Mutation("a pipe", lambda root: os.mkfifo(root / "model" / "pipe"))
    yield Mutation("no copy in metadata", lambda root: written(root / "metadata" / "MLmodel", CODE))


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def linked(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


def moved_and_linked(name: str) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        elsewhere = root.parent / f"{root.name} elsewhere"
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir()
        shutil.move(root / name, elsewhere / "moved")
        (root / name).symlink_to(elsewhere / "moved")

    return apply


def manifests() -> Iterator[Mutation]:
    digest = {"sha256": hashlib.sha256(b"").hexdigest(), "bytes": 0}
    odd_names = ("../outside", "/etc/passwd", "model/../../outside", "a\0b", "", ".", "x" * 5000, "\ud800", "MLmodel")
    for name in odd_names:
        yield Mutation(
            f"manifest names {name[:20]!r}", changed_manifest(lambda m, n=name: m["files"].update({n: digest}))
        )
    replaced = {
        "rows": (None, -1, 0, 1e300, 10**30, "80", True, [80], float("nan"), 81),
        "schema_version": (0, 3, -1, 1e999, "2", None, [2], {"2": 2}, 10**4000, True, 2.0),
        "files": (None, [], {}, {"x": 1}, {"x": None}, "x", [["x", 1]]),
        "output": (1, [], {"label": 1}, True),
        "mlmodel_sha256": (None, 1, "", "0" * 64, float("nan")),
        "versions": (None, [], 3),
    }
    for key, values in replaced.items():
        for value in values:
            yield Mutation(
                f"manifest {key} {value!r:.20}", changed_manifest(lambda m, k=key, v=value: m.update({k: v}))
            )
        yield Mutation(f"manifest without {key}", changed_manifest(lambda m, k=key: m.pop(k) and None))
    for value in (float("nan"), None, "0" * 64, 10**30, [], {"sha256": float("nan"), "bytes": float("nan")}):
        yield Mutation(f"manifest digest {value!r:.20}", changed_manifest(lambda m, v=value: digests(m, v)))
    bombs = (b"", b"\xff\xfe", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**6, b"1e999", b"[" + b"{}," * 10**6 + b"1]")
    for raw in bombs:
        yield Mutation(f"manifest {raw[:10]!r}", lambda root, raw=raw: seal(root, raw))
    yield Mutation("a manifest of the first version", changed_manifest(lambda m: m.update({"schema_version": 1})))


def changed_manifest(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        manifest = json.loads((root / "counterfactual" / "manifest.json").read_text())
        change(manifest)
        seal(root, manifest)

    return apply


def digests(manifest: dict, value: object) -> None:
    name = "counterfactual/policy.yaml"
    manifest["files"][name] = value if isinstance(value, dict) else {**manifest["files"][name], "sha256": value}


def mlmodels() -> Iterator[Mutation]:
    fields = {
        "metadata": {"owner": "somebody else"},
        "signature": None,
        "saved_input_example_info": None,
        "mlflow_version": "1.0",
        "resources": {"databricks": {}},
        "unknown": 1,
        "flavors.python_function.loader_module": "canary",
        "flavors.python_function.code": "model/code",
        "flavors.python_function.env": {"conda": "other.yaml"},
        "flavors.python_function.python_version": "2.7",
        "flavors.mlflow_cf.explainer": "other",
        "flavors.mlflow_cf.inner_model_id": "m-0",
        "flavors.sklearn": {"pickled_model": "model.pkl"},
    }
    for path, value in fields.items():
        yield Mutation(f"MLmodel {path}", changed_field(path, value))
    for name in sorted(ASSIGNED):
        yield Mutation(f"MLmodel {name}", changed_field(name, 7 if name == "model_size_bytes" else "other"), True)
    nine = "\n".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(9))
    bombs = {
        "tag": f"flavors: !!python/object/apply:os.system ['{COMMAND}']\n",
        "module": "flavors: !!python/module:canary\n",
        "anchors": f"a0: &a0 [lol]\n{nine}\nmetadata: *a9\n",
        "itself": "metadata: &a [*a]\n",
        "deep": "metadata: " + "[" * 10_000,
        "deep and closed": "metadata: " + "[" * 900 + "]" * 900,
        "huge": "metadata: " + "9" * 10**6,
        "base 60": "metadata: " + "1:" * 10**5 + "1",
        "many": "metadata: [" + "a," * 10**6 + "a]",
        "merge": "a: &a {b: 1}\nmetadata: {<<: [" + ", ".join(["*a"] * 40_000) + "]}\n",
        "nul": "\0",
        "no text": b"\xff\xfe\xff".decode("latin-1"),
    }
    for name, text in bombs.items():
        yield Mutation(f"MLmodel {name}", lambda root, text=text: bombed(root, text))
    yield Mutation("MLmodel of 100 MB", lambda root: os.truncate(root / "MLmodel", 10**8))


def bombed(root: Path, text: str) -> None:
    path = root / "MLmodel"
    path.write_text(text + path.read_text())


def changed_field(path: str, value: object) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        fields = yaml.safe_load((root / "MLmodel").read_text())
        *parents, last = path.split(".")
        inside = fields
        for parent in parents:
            inside = inside[parent]
        inside[last] = value
        (root / "MLmodel").write_text(yaml.safe_dump(fields))

    return apply


def texts() -> Iterator[Mutation]:
    """Yield forged texts of ours."""
    for name in ("features.json", "explainer.json"):
        bombs = (b"", b"null", b"[" * 10**6, b'{"features":' * 10**5, b"9" * 10**6, b"\xff", b'{"features": [NaN]}')
        for raw in (
            *bombs,
            b"[" + b"{}," * 10**6 + b"1]",
            b'"\\ud800"',
            b"1e999",
            b"cos\nsystem\n(S'" + COMMAND.encode(),
        ):
            yield Mutation(f"{name} {raw[:10]!r}", forged(name, raw))
    policies = {
        "tag": f"!!python/object/apply:os.system ['{COMMAND}']",
        "new": f"!!python/object/new:os.system ['{COMMAND}']",
        "name": "target: !!python/name:os.system",
        "anchor": "a: &a [1]\nb: *a\n",
        "deep": "{" * 50_000,
        "deep pairs": "a:\n" + "".join(" " * n + "- a:\n" for n in range(1, 500)),
        "base 60": "target: " + "1:" * 10**5 + "1",
        "hexadecimal": "target: 0x" + "f" * 2 * 10**5,
        "huge": "target: " + "9" * 2 * 10**5,
        "many": "target: [" + "a," * 10**5 + "a]",
        "binary": "target: !!binary " + "A" * 2 * 10**5,
        "set": "!!set {" + ",".join(map(str, range(20_000))) + "}",
        "date": "target: {label: 2024-01-01}",
        "nan": "target: {label: .nan, min_probability: .nan}",
    }
    for name, text in policies.items():
        yield Mutation(f"policy {name}", forged("policy.yaml", text.encode()), name == "nan")


def tables() -> Iterator[Mutation]:
    """Yield forged tables: what they unpack to, how they are packed, what their footers say."""
    columns = ("age", "income", "job", "owner", "debts")
    zeros = pa.table(dict.fromkeys(columns, pa.array(np.zeros(2_600_000))))
    for codec in ("snappy", "gzip", "zstd", "none"):
        yield Mutation(
            f"2.6 million rows, {codec}", forged_rows("background.parquet", lambda c=codec: packed(zeros, c))
        )
    label = pa.table({"label": pa.array(["x" * 1000]).take(pa.array(np.zeros(200_000, int)))})
    yield Mutation("labels, one text often", forged_rows("labels.parquet", lambda: packed(label, "none", rows=80)))
    for codec in ("zstd", "none"):
        small = {"label": pa.array(["x" * 10**6]).take(pa.array(np.zeros(80, int)))}
        yield Mutation(
            f"80 long labels, {codec}", forged_rows("labels.parquet", lambda c=codec, t=small: packed(pa.table(t), c))
        )
    for name in ("background.parquet", "labels.parquet"):
        for size in (0, 2**31 - 1, 2**32 - 1, 50):
            raw = b"PAR1" + b"\0" * 100 + struct.pack("<I", size) + b"PAR1"
            yield Mutation(f"{name} footer of {size}", forged(name, raw))
        yield Mutation(f"{name} is zlib", forged(name, zlib.compress(bytes(10**7))))
    yield Mutation("lists", forged("labels.parquet", packed(pa.table({"label": [[1]] * 80}), "none")))


def packed(table: pa.Table, codec: str, rows: int | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=codec, row_group_size=rows or 1024**2)
    return sink.getvalue().to_pybytes()


def forged_rows(name: str, build: Callable[[], bytes]) -> Callable[[Path], None]:
    """Return a mutation that also lets the manifest say how many rows there are now."""

    def apply(root: Path) -> None:
        raw = build()
        (root / "counterfactual" / name).write_bytes(raw)
        reseal(root)
        if name == "background.parquet":
            rows = pq.ParquetFile(pa.BufferReader(raw)).metadata.num_rows
            changed_manifest(lambda manifest: manifest.update({"rows": rows}))(root)

    return apply


def restated(root: Path) -> str:
    """Return the digest of MLmodel's fields as they are now; what a forger writes into the manifest."""
    return fields_sha256(yaml.safe_load((root / "MLmodel").read_text()))
