"""Rows of parquet files into a file of answers, in parts."""

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_loans
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.artifact.served import origin_of
from mlflow_cf.cli import main
from mlflow_cf.errors import InputError
from mlflow_cf.files import explain as files_explain
from mlflow_cf.files.explain import Asked, explain_files
from mlflow_cf.files.parts import Parts
from mlflow_cf.files.rows import RowFiles
from mlflow_cf.request.admission import Admission


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder of a saved model."""
    data = small_loans.table()
    folder = tmp_path_factory.mktemp("files") / "model"
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS, "pip_requirements": ["scikit-learn"]}
    mlflow_cf.save_model(small_loans.fitted(data), folder, data, limits=small_loans.PATIENT, **options)
    return folder


@pytest.fixture(scope="module")
def explained(saved):
    return mlflow_cf.load_model(saved)


@pytest.fixture(scope="module")
def rows():
    """Return 60 rows with a key of text."""
    rows = small_loans.table().head(60)
    return rows.assign(id=[f"p{number:02}" for number in range(60)])


def written(path, rows, **options):
    rows.to_parquet(path, index=False, **options)
    return path


@pytest.fixture(params=[1, 2])
def on_cores(request, explained):
    """Return the model for requests that take one core, or two."""
    return replace(explained, admission=Admission(request.param))


def run(explained, source, output, asked=Asked(), block_rows=7, model="m"):  # noqa: B008  frozen
    found = RowFiles.of(source, explained.space, asked.key, block_rows)
    return explain_files(explained, model, found, output, asked)


def leavings(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_lines_are_those_of_the_answers(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows, row_group_size=11)
    told = run(explained, source, tmp_path / "out.parquet", Asked({"count": 2}, key="id"))
    answers = explained.request(rows, {"counterfactual": {"count": 2}})
    assert told == answers.summary
    lines = pq.read_table(tmp_path / "out.parquet")
    expected = answers.to_table(range(60))
    assert lines.column_names == ["id", *expected.columns]
    assert lines["id"].to_pylist() == [f"p{row:02}" for row in expected["row"]]
    for name in expected.columns:
        plain = expected[name].astype(object).where(expected[name].notna(), None).tolist()
        assert lines[name].to_pylist() == plain, name
    assert leavings(tmp_path) == ["out.parquet", "rows.parquet"]


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 59))
def test_blocks_and_groups_of_rows_change_nothing(saved, rows, tmp_path_factory, block_rows, group_rows, first):
    explained = mlflow_cf.load_model(saved)
    folder = tmp_path_factory.mktemp("blocks")
    source = written(folder / "rows.parquet", rows, row_group_size=group_rows)
    found = RowFiles.of(source, explained.space, "id", block_rows)
    done = min(first, len(found.blocks) - 1)
    read = list(found.read(done))
    assert [block for block, _, _ in read] == list(found.blocks[done:])
    whole = pd.concat([table for _, table, _ in read], ignore_index=True)
    start = found.blocks[done].start
    pd.testing.assert_frame_equal(whole, rows.iloc[start:].reset_index(drop=True))
    assert [one for _, _, key in read for one in key.to_pylist()] == rows["id"].tolist()[start:]


def test_types_are_those_of_the_features(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows)
    run(explained, source, tmp_path / "out.parquet", Asked({"explain": "none"}))
    lines = pq.read_table(tmp_path / "out.parquet")
    kinds = {name: str(kind) for name, kind in zip(lines.column_names, lines.schema.types, strict=True)}
    assert kinds == {
        "row": "int64", "status": "string", "reason": "string",
        "age": "int64", "income": "double", "job": "string", "owner": "bool", "debts": "double",
        "counterfactual": "int64", "prediction": "string", "probability": "double", "distance": "double",
        "n_changed": "int64", "proof": "string",
    }  # fmt: skip
    assert lines["job"].null_count == len(lines) == 60
    run(explained, source, tmp_path / "all.parquet")
    assert pq.read_schema(tmp_path / "all.parquet") == lines.schema


def test_dates_categories_and_ordinals_keep_their_types(tmp_path):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 60), unit="D")
    data = pd.DataFrame(
        {
            "since": days,
            "there": days.tz_localize("Europe/Vienna"),
            "text": [str(day.date()) for day in days],
            "size": pd.Categorical(rng.choice(["s", "m", "l"], 60), ["s", "m", "l"], ordered=True),
            "stars": pd.Categorical(rng.integers(1, 5, 60), [1, 2, 3, 4], ordered=True),
            "count": pd.array(np.where(rng.random(60) < 0.2, None, rng.integers(0, 9, 60)), dtype="Int64"),
            "ratio": rng.random(60).astype(np.float32),
        }
    )

    def score(rows):
        return ((pd.to_datetime(rows["since"]).dt.year > 2020) & (rows["ratio"] > 0.5)).astype(int).to_numpy()

    explained = mlflow_cf.wrap(score, data, target=1, output="label", features={"text": {"kind": "date"}})
    source = written(tmp_path / "rows.parquet", data)
    run(explained, source, tmp_path / "out.parquet")
    lines = pq.read_table(tmp_path / "out.parquet")
    kinds = [str(lines.schema.field(name).type) for name in data]
    zoned = "timestamp[us, tz=Europe/Vienna]"
    assert kinds == ["timestamp[us]", zoned, "string", "string", "int64", "int64", "double"]
    expected = explained.request(data).to_frame()
    assert len(expected)
    found = lines.filter(pa.compute.equal(lines["status"], "found")).to_pandas()
    assert found["since"].tolist() == expected["since"].tolist()
    assert found["there"].tolist() == expected["there"].tolist()
    assert found["size"].tolist() == expected["size"].astype(str).tolist()
    assert found["ratio"].tolist() == expected["ratio"].astype(float).tolist()


def test_a_ladder_has_its_rungs(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows)
    target = {"label": "good", "ladder": [0.5, 0.7]}
    run(explained, source, tmp_path / "out.parquet", Asked({"target": target}))
    lines = pq.read_table(tmp_path / "out.parquet")
    assert set(lines["rung"].drop_null().to_pylist()) == {1, 2}
    assert lines.schema.field("rung").type == pa.int64()


class StoppedError(Exception):
    """Stands for whatever ends a run."""


@pytest.mark.parametrize("done", [0, 1, 5])
def test_what_is_finished_is_taken_up_again(on_cores, explained, rows, tmp_path, monkeypatch, done):
    source, output = written(tmp_path / "rows.parquet", rows), tmp_path / "out.parquet"
    told = run(explained, source, tmp_path / "whole.parquet")
    asked = []

    def until_stopped(model, table, params):
        asked.append(len(table))
        if len(asked) > done:
            raise StoppedError
        return files_explain_block(model, table, params)

    files_explain_block = files_explain.answer_block
    with monkeypatch.context() as patch:
        patch.setattr(files_explain, "answer_block", until_stopped)
        with pytest.raises(StoppedError):
            run(on_cores, source, output)
    assert not output.exists()
    again = run(on_cores, source, output)
    assert again == (f"{told} ({7 * done} of them taken up again)" if done else told)
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert leavings(tmp_path) == ["out.parquet", "rows.parquet", "whole.parquet"]


def test_rows_that_cannot_be_read_later_lose_nothing_that_is_finished(on_cores, rows, tmp_path, monkeypatch):
    source, output = written(tmp_path / "rows.parquet", rows), tmp_path / "out.parquet"
    read = RowFiles.read

    def read_two(files, done):
        blocks = read(files, done)
        yield from (next(blocks), next(blocks))
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(RowFiles, "read", read_two)
        with pytest.raises(StoppedError):
            run(on_cores, source, output)
    assert "(14 of them taken up again)" in run(on_cores, source, output)


@pytest.fixture
def half_done(explained, rows, tmp_path):
    """Return rows of which three parts of answers are there."""
    source, output = written(tmp_path / "rows.parquet", rows), tmp_path / "out.parquet"
    run(explained, source, output)
    lines = pq.read_table(output)
    output.unlink()
    digest = files_explain._digest("m", RowFiles.of(source, explained.space, None, 7), Asked())
    parts = Parts(output, digest, lines.schema)
    assert parts.begin() == []
    for number in range(3):
        parts.add(number, lines.slice(number, 1), {"found": 7})
    return source, output, parts


@pytest.mark.parametrize("other", ["model", "rows", "options", "blocks"])
def test_parts_of_something_else_are_not_taken_up(explained, rows, half_done, other):
    source, output, _ = half_done
    if other == "rows":
        written(source, rows.assign(income=rows["income"] + 1))
    options = {"model": {"model": "n"}, "options": {"asked": Asked({"count": 2})}, "blocks": {"block_rows": 8}}
    assert "taken up" not in run(explained, source, output, **options.get(other, {}))
    assert output.exists()


def test_a_damaged_part_is_made_again(explained, half_done):
    source, output, parts = half_done
    part = parts.folder / "part-000001.arrow"
    part.write_bytes(part.read_bytes()[:-9])
    assert "(7 of them taken up again)" in run(explained, source, output)


def test_a_folder_of_somebody_else_is_left_alone(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows)
    folder = tmp_path / "out.parquet.parts"
    folder.mkdir()
    (folder / "dear.txt").write_text("")
    with pytest.raises(InputError, match="has files that are not of this command"):
        run(explained, source, tmp_path / "out.parquet")
    assert leavings(folder) == ["dear.txt"]


@pytest.mark.parametrize("most", [500, 9_000])
def test_a_full_disk_leaves_no_file_under_the_final_name(on_cores, rows, tmp_path, most):
    """A limit on the size of files stands for the disk: of parts (500 bytes), or of the whole file alone (9,000)."""
    source, output = written(tmp_path / "rows.parquet", rows), tmp_path / "out.parquet"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot be written \(.*; .*make room.*run the same command again"):
            run(on_cores, source, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not output.exists()
    folder = tmp_path / "out.parquet.parts"
    assert all(name.startswith(("of.", "part-")) and name.count(".") == 1 for name in leavings(folder))
    assert (most > 500) == ("part-000000.arrow" in leavings(folder))
    run(on_cores, source, output)
    assert leavings(tmp_path) == ["out.parquet", "rows.parquet"]


def test_rows_that_cannot_be_read_are_invalid(explained, rows, tmp_path):
    bad = rows.assign(income=rows["income"].where(~rows.index.isin([0, 3, 14, 15, 16, 17, 18, 19, 20]), np.inf))
    source = written(tmp_path / "rows.parquet", bad)
    told = run(explained, source, tmp_path / "out.parquet")
    assert "9 invalid" in told
    lines = pq.read_table(tmp_path / "out.parquet").to_pandas()
    assert lines[lines["status"] == "invalid"]["row"].tolist() == [0, 3, *range(14, 21)]
    assert lines.set_index("row")["reason"][15].startswith("income: inf is no finite number")


def test_a_folder_of_files(explained, rows, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    written(folder / "part-0.parquet", rows.head(10).assign(age=rows["age"].astype("int32")))
    written(folder / "part-1.parquet", rows.iloc[10:30].assign(income=rows["income"].astype(str)))
    written(folder / "part-2.parquet", rows.iloc[30:])
    (folder / "_SUCCESS").touch()
    written(folder / ".hidden.parquet", rows.head(1)[["age"]])
    told = run(explained, folder, tmp_path / "out.parquet", Asked(key="id"))
    lines = pq.read_table(tmp_path / "out.parquet").to_pandas()
    assert told.startswith("60 rows: ")
    assert "20 invalid" in told
    assert lines["row"].tolist() == list(range(60))
    assert lines["id"].tolist() == rows["id"].tolist()


def test_a_column_that_one_file_lacks_is_named(explained, rows, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    written(folder / "part-0.parquet", rows.head(10))
    written(folder / "part-1.parquet", rows.iloc[10:].drop(columns="debts"))
    with pytest.raises(InputError, match=r"part-1.parquet.debts: column is missing"):
        run(explained, folder, tmp_path / "out.parquet")
    assert leavings(tmp_path) == ["rows"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a"] * 30 + [None] + ["b"] * 29, r"rows.parquet.id: row 30 has no key; fill it in, or leave the key out"),
        ([1.0] * 59 + [np.nan], r"rows.parquet.id: row 59 has no key"),
    ],
)
def test_a_row_without_key_is_named(explained, rows, tmp_path, keys, message):
    source = written(tmp_path / "rows.parquet", rows.assign(id=keys))
    with pytest.raises(InputError, match=message):
        run(explained, source, tmp_path / "out.parquet", Asked(key="id"))


def test_keys_of_several_types_are_refused(explained, rows, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    written(folder / "part-0.parquet", rows.head(10))
    written(folder / "part-1.parquet", rows.iloc[10:].assign(id=1))
    with pytest.raises(InputError, match=r"part-1.parquet.id: is int64 here, and (large_)?string in part-0.parquet"):
        run(explained, folder, tmp_path / "out.parquet", Asked(key="id"))


def test_the_same_key_twice_is_kept(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows.assign(id=7))
    run(explained, source, tmp_path / "out.parquet", Asked(key="id"))
    lines = pq.read_table(tmp_path / "out.parquet")
    assert (lines["id"].to_pylist(), lines["row"].to_pylist()) == ([7] * 60, list(range(60)))


def test_a_key_that_is_a_feature_gets_an_underscore(explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows)
    run(explained, source, tmp_path / "out.parquet", Asked(key="age"))
    lines = pq.read_table(tmp_path / "out.parquet")
    assert lines.column_names[0] == "age_"
    assert lines["age_"].to_pylist() == rows["age"].tolist()


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_the_same(saved, explained, rows, tmp_path):
    source = written(tmp_path / "rows.parquet", rows)
    words = ("explain", "-m", saved, "-i", source, "-o", tmp_path / "out.parquet", "--key", "id", "--only", "found")
    result = command(*words)
    assert result.output == explained.request(rows).summary + "\n"
    asked = Asked(only=("found",), key="id")
    run(explained, source, tmp_path / "same.parquet", asked, 10_000, origin_of(saved).manifest_sha256)
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "same.parquet").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-i", "rows.csv", "-o", "out.parquet", "--key", "id"), "goes with rows and table as .parquet"),
        (("-i", "none.parquet", "-o", "out.parquet"), "is neither a parquet file nor a folder of some"),
        (("-i", ".", "-o", "../out.csv"), "--input-path is a folder; name a .parquet file with -o"),
        (("-i", "."), "--input-path is a folder; name a .parquet file with -o"),
        (("-i", ".", "-o", "out.parquet"), "out.parquet lies among the rows; name a file elsewhere"),
        (("-i", "rows.parquet", "-o", "rows.parquet"), "rows.parquet is the file of the rows; name another file"),
        (("-i", "rows.parquet", "-o", "out.parquet", "--key", "idd"), "did you mean 'id'?"),
        (("-i", "no.parquet", "-o", "out.parquet"), "no.parquet: cannot be read as parquet"),
        (("-i", "empty.parquet", "-o", "out.parquet"), "empty.parquet: has no rows"),
        (("-i", "rows.parquet", "-o", "out.parquet", "-q", '{"cuont": 1}'), "did you mean 'count'?"),
        (("-i", "rows.parquet", "-o", "out.parquet", "-q", '{"time_limit_s": true}'), "time_limit_s"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_message(saved, rows, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    written(Path("rows.parquet"), rows)
    written(Path("empty.parquet"), rows.head(0))
    Path("no.parquet").write_text("no")
    result = command("explain", "-m", saved, *words)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize("blocks", [0, 2])
def test_an_interruption_names_the_parts_that_the_command_goes_on_after(saved, rows, tmp_path, monkeypatch, blocks):
    answer, left = files_explain.answer_block, iter([True] * blocks)

    def interrupted(*asked):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return answer(*asked)

    monkeypatch.setattr(files_explain, "answer_block", interrupted)
    monkeypatch.setattr(RowFiles.of.__func__, "__defaults__", (7,))
    source = written(tmp_path / "rows.parquet", rows)
    result = command("explain", "-m", saved, "-i", source, "-o", tmp_path / "out.parquet", "--jobs", "1")
    kept = f"; the same command goes on after the {blocks} parts that it has finished" if blocks else ""
    assert (result.exit_code, result.stderr) == (130, f"interrupted{kept}\n")


SLOWLY = """
import sys, time
import mlflow_cf
from mlflow_cf.files import explain as slow
from mlflow_cf.files.rows import RowFiles
from pathlib import Path
from test_files import run

answer = slow.answer_block
slow.answer_block = lambda *asked: (time.sleep(0.1), answer(*asked))[1]
run(mlflow_cf.load_model(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.system
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_goes_on(saved, explained, rows, tmp_path, how):
    source, output = written(tmp_path / "rows.parquet", rows), tmp_path / "out.parquet"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    words = [sys.executable, "-c", SLOWLY, str(saved), str(source), str(output)]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE) as process:
        ends = time.monotonic() + 60
        while not (tmp_path / "out.parquet.parts" / "part-000001.arrow").exists() and time.monotonic() < ends:
            time.sleep(0.02)
        process.send_signal(how)
        process.communicate()
    assert not output.exists()
    assert "of them taken up again" in run(explained, source, output)
    run(explained, source, tmp_path / "whole.parquet")
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
