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
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.cli import COMMANDS, main
from mlflow_cf.cli.shared import EXITS, QUICK, Exit


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
