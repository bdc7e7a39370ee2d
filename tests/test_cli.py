import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.cli import COMMANDS, main
from mlflow_cf.cli.shared import EXITS, QUICK, Exit, read_rows


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"income": rng.integers(10, 90, 200) * 500, "age": rng.integers(18, 70, 200)})
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(data, (data.income > 25_000).to_numpy())
    folder = tmp_path_factory.mktemp("cli")
    mlflow_cf.save_model(model, folder / "explained", data, target=True, constraints={"immutable": ["age"]})
    data.nsmallest(2, "income").to_csv(folder / "rows.csv", index=False)
    return folder


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def told(*words):
    """Return what a command prints for people; CliRunner is no terminal."""
    return run(*words, "--text")


def test_explain_prints_a_line_per_row_and_a_sentence_per_counterfactual(saved):
    result = told("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "-q", '{"count": 2}')
    assert result.exit_code == 0
    head, _, first, *_ = result.output.splitlines()[1:]
    assert head.split() == ["row", "prediction", "status", "what", "would", "have", "to", "change"]
    assert first.split()[:4] == ["0", "False", "(0.00)", "found"]
    assert "income rises from" in first


def test_a_pipe_gets_json_and_a_terminal_words(saved, monkeypatch):
    words = ("explain", "-m", saved / "explained", "-i", saved / "rows.csv")
    assert [record["status"] for record in json.loads(run(*words).output)] == ["found", "found"]
    assert json.loads(run("verify", "-m", saved / "explained").output)["rows"] == 200
    monkeypatch.setattr("mlflow_cf.cli.shared.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert run("verify", "-m", saved / "explained").output.endswith("\nOK\n")


def test_a_terminal_of_80_columns_shows_the_whole_sentence(saved, monkeypatch):
    record = mlflow_cf.load_model(saved / "explained").explain(pd.read_csv(saved / "rows.csv").head(1))[0].to_dict()
    monkeypatch.setattr("mlflow_cf.cli.explaining.PIPE_WIDTH", 80)
    lines = told("explain", "-m", saved / "explained", "-i", saved / "rows.csv").output.splitlines()
    assert max(map(len, lines)) <= 80
    printed = " ".join(" ".join(lines).split())
    assert all(word in printed for word in record["counterfactuals"][0]["text"].split())


def test_explain_says_what_is_proved(saved):
    result = told("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "-q", '{"certify": true}')
    assert "the prediction becomes yes (proved: nothing is nearer)" in result.output


def test_explain_prints_the_records_of_a_reply(saved):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "--json", "-q", '{"explain": "none"}')
    assert [record["status"] for record in json.loads(result.output)] == ["skipped", "skipped"]


@pytest.fixture(scope="module")
def mixed(saved):
    """Return a file of rows of which some have the wanted outcome already."""
    table = pd.DataFrame({"income": [5_000, 44_000, 6_000, 43_000], "age": [30, 40, 50, 60]})
    table.to_csv(saved / "mixed.csv", index=False)
    return saved / "mixed.csv"


def test_explain_ends_with_how_many_rows_there_are_of_each_status(saved, mixed):
    result = told("explain", "-m", saved / "explained", "-i", mixed)
    assert result.output.splitlines()[-1] == "4 rows: 2 found, 2 already"
    assert any(line.split()[:4] == ["1", "True", "(1.00)", "already"] for line in result.output.splitlines())


def test_explain_prints_only_what_is_asked_for(saved, mixed):
    words = ("explain", "-m", saved / "explained", "-i", mixed, "--only", "found")
    result = told(*words)
    assert "already" not in "".join(result.output.splitlines()[:-1])
    assert [line.split()[0] for line in result.output.splitlines()[:-1] if "found" in line] == ["0", "2"]
    assert [record["status"] for record in json.loads(run(*words, "--json").output)] == ["found", "found"]
    assert len(json.loads(run(*words, "--only", "already").output)) == 4
    assert "'foundd' is not one of" in run(*words, "--only", "foundd").output


@pytest.mark.parametrize(("name", "read"), [("found.csv", pd.read_csv), ("found.parquet", pd.read_parquet)])
def test_explain_writes_a_table(saved, mixed, tmp_path, name, read):
    words = ("explain", "-m", saved / "explained", "-i", mixed, "-o")
    result = run(*words, tmp_path / name)
    assert result.output == "4 rows: 2 found, 2 already\n"
    table = read(tmp_path / name)
    assert (table["row"].tolist(), table["status"].tolist()) == ([0, 1, 2, 3], ["found", "already"] * 2)
    assert table["income"].isna().tolist() == [False, True] * 2
    assert table["age"].dropna().tolist() == [30, 50]
    run(*words, tmp_path / name, "--only", "found")
    assert set(read(tmp_path / name)["status"]) == {"found"}
    assert "found.xls is none of .csv, .parquet" in run(*words, tmp_path / "found.xls").output


def test_a_table_has_a_line_per_counterfactual_or_row(saved, mixed):
    answers = mlflow_cf.load_model(saved / "explained").explain(pd.read_csv(mixed), count=2)
    table = answers.to_table([0, 1, 2])
    expected = [place for place in range(3) for _ in answers[place].counterfactuals or [0]]
    assert table["row"].tolist() == expected
    assert table["income"].dropna().tolist() == answers[:3].to_frame()["income"].tolist()
    assert list(answers.to_table([]).columns) == list(table.columns)


def test_no_bar_stands_between_answers(saved, mixed, monkeypatch):
    monkeypatch.delenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", raising=False)
    info = mlflow_cf.log_model(
        str(saved / "explained" / "model"), "cli", pd.read_csv(mixed), target=True, pip_requirements=["scikit-learn"]
    )
    result = run("explain", "-m", info.model_uri, "-i", mixed)
    assert result.exit_code == 0, result.output
    assert "Downloading" not in result.output + result.stderr
    assert "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR" not in os.environ


def test_evaluate_prints_and_logs_the_figures(saved, tmp_path):
    rows = pd.read_csv(saved / "rows.csv").assign(group=["a", "b"], rich=[False, False])
    rows.to_parquet(tmp_path / "rows.parquet")
    words = ("-m", saved / "explained", "-r", tmp_path / "rows.parquet", "-g", "group", "--labels", "rich")
    result = run("evaluate", *words, "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.output[result.output.index("{") :])
    assert metrics["cf/coverage/group.a"] == 1
    assert metrics["cf/accuracy"] == 1
    logged = mlflow.last_active_run().data.metrics
    assert {"cf/coverage", "cf/accuracy"} <= set(logged)
    assert logged.items() <= metrics.items()
    result = told("evaluate", *words, "-e", "geco", "-e", "nearest_row")
    assert "winner geco" in result.output
    assert run("evaluate", *words, "-e", "gecko").output.strip().endswith("did you mean 'geco'?")


def test_describe_names_model_and_policy(saved):
    text = told("describe", "-m", saved / "explained").output
    assert text.startswith("model        sklearn, labels false, true")
    assert "constraints  immutable: age\n" in text


def test_describe_prints_the_facts(saved):
    facts = json.loads(run("describe", "-m", saved / "explained", "--json").output)
    assert facts == mlflow_cf.load_model(saved / "explained").describe()
    assert facts["policy"]["constraints"] == {"immutable": ["age"]}


def test_schema_lists_the_options_of_a_request():
    assert "max_evaluations" in json.loads(run("schema").output)["properties"]


def test_schema_shows_where_they_stand_in_a_request(saved):
    schema = json.loads(run("schema").output)
    (example,) = schema["examples"]
    body, _ = json.JSONDecoder().raw_decode(schema["description"], schema["description"].index('{"dataframe'))
    assert body["params"] == {"counterfactual": example}
    served = mlflow.pyfunc.load_model(str(saved / "explained"))
    (record,) = served.predict(pd.DataFrame(body["dataframe_records"]), body["params"]).to_dict("records")
    assert record["status"] == "found"
    serving = json.loads((saved / "explained" / "serving_input_example.json").read_text())
    assert set(serving["params"]) == {"counterfactual"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-q", '{"cuont": 1}'), "cuont: not a known key; did you mean 'count'?"),
        (("-q", "{"), "not JSON"),
        (("-q", "[]"), "not a JSON object"),
        (("-i", "rows.xls"), "there is no file"),
    ],
)
def test_mistakes_are_one_clear_message(saved, words, message):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv", *words)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_missing_model_is_one_clear_message(tmp_path):
    result = run("describe", "-m", tmp_path / "nothing")
    assert result.exit_code == Exit.WRONG
    assert "nothing" in result.output


def test_verify_checks_without_opening_the_model(saved, monkeypatch):
    monkeypatch.setattr("mlflow_cf.artifact.load.open_folder", lambda *_, **__: pytest.fail("opened"))
    result = told("verify", "-m", saved / "explained")
    assert result.exit_code == 0
    assert result.output.startswith("files     ")
    assert "bytes, 200 background rows\nwritten   by mlflow-cf " in result.output
    assert result.output.endswith("\nOK\n")


def test_verify_tells_what_is_wrong(saved, tmp_path):
    folder = shutil.copytree(saved / "explained", tmp_path / "copy")
    (folder / "requirements.txt").write_text("evil\n")
    result = run("verify", "-m", folder)
    assert result.exit_code == 1
    assert result.output.startswith(
        "Error: requirements.txt: has other bytes than the manifest says; log the explained"
    )
    assert run("verify", "-m", tmp_path).exit_code == Exit.FAILS
    assert run("verify", "-m", tmp_path / "nothing").exit_code == Exit.WRONG
    assert run("describe", "-m", folder).exit_code == Exit.WRONG


def test_help_needs_nothing_of_the_rest():
    code = "import sys; from mlflow_cf.cli import main; main(['--help'], standalone_mode=False)\n"
    code += "sys.exit(sorted({'mlflow', 'pandas', 'numba'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exit codes:" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_are_known(name):
    command = main.get_command(None, name)
    help_text = run(name, "--help").output
    assert command.examples
    for example in command.examples:
        assert example in help_text
        line = example.removeprefix('eval "$(').removesuffix(')"').partition(" > ")[0]
        program, named, *words = shlex.split(line)
        assert (program, named) == ("mlflow-cf", name)
        command.make_context(name, words)


def test_what_help_says_of_all_is_what_each_says():
    for name, lazy in COMMANDS.items():
        assert lazy.told.endswith(".")
        assert main.get_command(None, name).name in (name, None)
    assert main.get_command(None, "explian") is None


def test_the_page_has_the_exit_codes_and_commands_of_the_code():
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert codes == [(str(int(code)), told) for code, told in EXITS.items()]
    assert re.findall(r"^\| `mlflow-cf (\w+)", page, re.MULTILINE) == list(COMMANDS)


def test_interruptions_have_a_code_of_their_own(saved, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlflow_cf.cli.checking.verify_folder", interrupted)
    result = run("verify", "-m", saved / "explained")
    assert (result.exit_code, result.stderr) == (Exit.INTERRUPTED, "interrupted\n")


def test_an_interruption_of_the_imports_has_that_code_too(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlflow_cf.cli.import_module", interrupted)
    result = run("verify", "-m", "none")
    assert (result.exit_code, result.stderr) == (Exit.INTERRUPTED, "interrupted\n")


def is_refused(result, message):
    """Hold that a command has told a mistake in a line."""
    assert (result.exit_code, message in result.stderr) == (Exit.WRONG, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("linked", [False, True])
def test_an_output_is_not_the_rows(saved, tmp_path, ending, linked):
    rows, output = tmp_path / f"rows{ending}", tmp_path / f"{'link' if linked else 'rows'}{ending}"
    table = pd.read_csv(saved / "rows.csv")
    table.to_csv(rows, index=False) if ending == ".csv" else table.to_parquet(rows)
    before = rows.read_bytes()
    if linked:
        output.hardlink_to(rows)
    is_refused(run("explain", "-m", saved / "explained", "-i", rows, "-o", output), "is the file of the rows")
    is_refused(run("report", "-m", saved / "explained", "-i", rows, "-o", output), "is none of .html, .htm")
    assert rows.read_bytes() == before


def test_a_page_is_not_the_rows(saved, tmp_path):
    page = tmp_path / "page.html"
    page.symlink_to(saved / "rows.csv")
    words = ("-m", saved / "explained", "-i", saved / "rows.csv", "-o", page)
    is_refused(run("report", *words), "page.html is the file of the rows")
    is_refused(run("monitor", "table.parquet", "-o", "table.parquet"), "is none of .html, .htm")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("ragged.csv", b"income,age\n1,2\n1,2,3\n"),
        ("latin.csv", "income,age,name\n1,2,M\u00fcller\n".encode("latin-1")),
        ("bytes.csv", bytes(range(256))),
        ("bytes.parquet", bytes(range(256))),
        ("broken.json", b'[{"income": 1'),
        ("scalars.json", b'{"age": 3}'),
    ],
)
def test_rows_that_cannot_be_read_are_a_mistake(saved, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    model = ("-m", saved / "explained")
    for words in (("explain", *model, "-i"), ("evaluate", *model, "-r"), ("suggest", "-i"), ("ui", *model, "--rows")):
        is_refused(run(*words, tmp_path / name), f"{name} cannot be read: ")


def test_an_output_that_cannot_be_written_is_refused_before_the_work(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("mlflow_cf.cli.explaining.read_rows", lambda *_, **__: pytest.fail("worked"))
    for folder in (tmp_path / "none", saved / "rows.csv"):
        words = ("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "-o", folder / "found.csv")
        is_refused(run(*words), "found.csv cannot be written (")
        is_refused(
            run("suggest", "-i", saved / "rows.csv", "-o", folder / "found.yaml"), "found.yaml cannot be written ("
        )


@pytest.mark.parametrize("name", ["found.csv", "found.yaml"])
def test_a_disk_that_is_full_leaves_the_old_file(saved, tmp_path, monkeypatch, name):
    (tmp_path / name).write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    words = ("suggest",) if name == "found.yaml" else ("explain", "-m", saved / "explained")
    is_refused(
        run(*words, "-i", saved / "rows.csv", "-o", tmp_path / name), f"{name} cannot be written (No space left)"
    )
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(name, "old")]


@pytest.fixture(scope="module")
def coded(saved):
    """Return the folder of a model of codes that look like numbers, and of levels that look like missing values."""
    data = pd.DataFrame({"code": ["01", "02", "10", "NA"] * 20, "group": ["None", "x"] * 40, "age": range(20, 100)})
    encoded = make_column_transformer((OneHotEncoder(), ["code", "group"]), remainder="passthrough")
    model = make_pipeline(encoded, DecisionTreeClassifier(random_state=0)).fit(data, data["code"] == "10")
    mlflow_cf.save_model(model, saved / "coded", data, target=True)
    return saved / "coded"


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet"])
def test_columns_of_text_are_read_as_they_are_written(coded, tmp_path, ending):
    table = pd.DataFrame({"code": ["01", "NA", None], "group": ["None", "x", "x"], "age": [20, 21, 22]})
    path = tmp_path / f"rows{ending}"
    {".csv": table.to_csv, ".parquet": table.to_parquet}.get(ending, table.to_json)(path)
    found = json.loads(run("explain", "-m", coded, "-i", path).stdout)
    changes = [{one["feature"]: one["from"] for one in record["counterfactuals"][0]["changes"]} for record in found[:2]]
    assert [one["code"] for one in changes] == ["01", "NA"]
    read = read_rows(path, models=[str(coded)])
    assert read["code"].isna().tolist() == [False, False, True]
    assert read["group"].tolist() == ["None", "x", "x"]
    assert read["age"].tolist() == [20, 21, 22]
    assert read_rows(path, models=[str(tmp_path / "none")])["age"].tolist() == [20, 21, 22]


def test_a_comparison_reads_texts_as_its_models_take_them(coded, tmp_path):
    pd.DataFrame({"code": ["01", "NA"], "group": ["None", "x"], "age": [20, 21]}).to_csv(tmp_path / "r.csv")
    found = json.loads(run("compare", coded, "-r", tmp_path / "r.csv", "--json").stdout)
    assert found["metrics"][str(coded)]["cf/coverage"] == 1


def test_a_metric_that_does_not_exist_is_refused_beside_the_figures(saved):
    words = ("evaluate", "-m", saved / "explained", "-r", saved / "rows.csv")
    result = run(*words, "--metric", "(["), run(*words, "--metric", "cf/gowre", "--metric", "cf/gower")
    is_refused(result[0], "--metric: no metric is called '(['")
    is_refused(result[1], "--metric: no metric is called 'cf/gowre'; did you mean 'cf/gower'?")
    assert json.loads(result[1].stdout)["cf/coverage"] == 1


def test_where_nothing_was_to_be_explained_a_comparison_says_so_alone(saved, tmp_path, caplog):
    pd.DataFrame({"income": [44_000, 43_000], "age": [40, 60]}).to_csv(tmp_path / "rows.csv", index=False)
    copy = shutil.copytree(saved / "explained", tmp_path / "copy")
    result = told("compare", saved / "explained", copy, "-r", tmp_path / "rows.csv")
    lines = result.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines if line] == ["Comparison", "note:", "note:", "run"]
    assert "no row misses the target" in result.stdout
    assert "pictures of an evaluation" not in caplog.text


def test_a_time_limit_is_positive(saved):
    is_refused(run("check", "record.json", "-m", saved / "explained", "--time-limit", "-1"), "not in the range x>0")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell):
    script = run("completion", shell).output
    assert "_MLFLOW_CF_COMPLETE" in script
    assert "mlflow-cf" in script


def completed(*words):
    *before, last = words
    return [item.value for item in ShellComplete(main, {}, "mlflow-cf", "_X").get_completions(list(before), last)]


def test_commands_options_models_and_explainers_are_completed(saved, monkeypatch):
    assert completed("ver") == ["verify"]
    assert "--only" in completed("explain", "--o")
    assert completed("explain", "--only", "inf") == ["infeasible"]
    assert completed("evaluate", "-e", "ge") == ["geco"]
    model = str(saved / "explained" / "model")
    mlflow_cf.log_model(model, "m", pd.read_csv(saved / "rows.csv"), target=True, registered_model_name="completed")
    mlflow.MlflowClient().set_registered_model_alias("completed", "best", "1")
    assert completed("explain", "-m", "models:/comp") == ["models:/completed/", "models:/completed@best"]
    monkeypatch.setattr("mlflow.MlflowClient.search_registered_models", lambda *_, **__: 1 / 0)
    assert completed("explain", "-m", "models:/comp") == []
    assert not set(QUICK) & set(os.environ)  # the limits of a key press are not those of a command
