"""The page of results: a small run, what is compared on which rows, refusals, and its promises."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest

from mlflow_cf.explainers import EXPLAINERS

# MLflow selects columns of type object when it logs a table.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")


@pytest.fixture(scope="module")
def case(benchmark):
    """A tree over numbers and levels."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"job": rng.choice(["x", "y", "z"], 120), "age": rng.integers(20, 32, 120), "income": rng.integers(0, 9, 120)}
    )
    labels = ((rows["age"] > 26) & (rows["job"] != "x")).astype(int)
    return benchmark.data_sets.Split("small", rows, labels, rows, labels)


def test_the_page_runs_anywhere_and_is_logged(benchmark, monkeypatch, tmp_path, capsys, case):
    page = benchmark.page
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    chosen = benchmark.bench.options().parse_args(["--parts", "page", "--rows", "2"])
    chosen.models = ["tree", page.UNOPENED]
    few = {name: EXPLAINERS[name] for name in ("geco", "exact", "ceocl", "nearest_row")}
    monkeypatch.setattr(page, "EXPLAINERS", few)
    monkeypatch.setattr(page, "split", lambda name, *_: replace(case, name=name))
    monkeypatch.setattr(page, "constraints_for", lambda *_, **__: {"increasing": ["age"]})
    with mlflow.start_run() as run:
        assert benchmark.bench.PARTS["page"](chosen) == []
    text = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/page.md")
    assert text in capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 160
    assert "`ceocl` does not take this model: explainer: the model could not be opened" in text
    assert "## Together: tree\n" in text
    table = mlflow.load_table("page.json", run_ids=[run.info.run_id])
    assert table["explainer"].tolist()[: len(few)] == list(few)
    assert sorted(set(table["model"])) == [page.UNOPENED, "tree"]
    assert len(table) == 2 * len(few)
    told = mlflow.get_run(run.info.run_id).data.metrics
    assert told["page loans exact/proved"] == told["page loans exact/of_nearest"] == 1
    assert told["page loans geco/calls"] >= 1


def test_every_explainer_is_on_the_page_with_settings_it_takes(benchmark):
    assert benchmark.page.EXPLAINERS is EXPLAINERS
    assert {name: one.name for name, one in benchmark.turns.explainers().items()} == {name: name for name in EXPLAINERS}


def lines(**columns):
    """Three explainers on two rows of a model; `few` answers none."""
    table = pd.DataFrame(
        {
            "explainer": ["near", "near", "far", "far", "few", "few"],
            "model": "tree",
            "row": [0, 1] * 3,
            "answered": [True, True, True, False, False, False],
            "distance": [0.1, 0.3, 0.2, np.nan, np.nan, np.nan],
            "changed": [1.0, 2.0, 1.0, np.nan, np.nan, np.nan],
            "plausible": [1.0, 0.0, 1.0, np.nan, np.nan, np.nan],
            "proved": [True, False, False, False, False, True],
            "several": [True, False] * 3,
            "diverse": [0.5, np.nan] * 3,
            "cpu": [0.001, 0.003, 0.5, 0.5, 2.0, 2.0],
            "several_cpu": 0.1,
            "evaluations": 10,
            "calls": 2,
            "answers": [4, 2, 4, 0, 0, 0],
            "valid": [4, 2, 3, 0, 0, 0],
            "lawful": [4, 2, 4, 0, 0, 0],
            "slowest_s": [0.1, 0.2, 2.3, 2.5, 0.1, 0.1],
        }
    )
    return table.assign(**columns)


def test_distances_are_compared_on_the_rows_that_those_answered_who_answer_enough(benchmark):
    told = benchmark.page_text.figures(lines())
    assert list(told) == ["near", "far", "few"]
    assert (told["near"]["distance"], told["far"]["distance"]) == (0.1, 0.2)
    assert told["near"]["own_distance"] == pytest.approx(0.2)
    assert (told["near"]["of_nearest"], told["far"]["of_nearest"]) == (1.0, 2.0)
    assert (told["near"]["plausible"], told["near"]["proved"], told["few"]["proved"]) == (0.5, 0.5, 0.5)
    assert (told["near"]["cpu_ms"], told["near"]["diverse"]) == (2.0, 0.5)
    assert np.isnan([told["few"][key] for key in ("distance", "own_distance", "of_nearest", "changed")]).all()


def test_who_does_best_is_said_of_those_that_answer_as_many(benchmark):
    told = benchmark.page_text.figures(lines())
    assert benchmark.page_text.in_short(told) == ""  # nobody else answers both rows
    told["far"]["answered"] = 0.96
    text = " ".join(benchmark.page_text.in_short(told).split())
    assert text == (
        "Among those that answer 95% of the rows or more: nearest near (1.00); fewest changes far (1.0); "
        "most plausible far (100%); most often proved near (50%); fastest near (2.0)."
    )


def test_a_slow_or_wrong_explainer_misses_its_promises(benchmark, case):
    tried = benchmark.page.Tried("tree", case, "", lines(), {"other": "it does not fit"}, ["BROKEN: far"])
    missed = {(name, gate.what): gate.found for name, gate in tried.gates() if not gate.kept}
    assert missed == {("small / tree, far", "valid"): 0.75, ("small / tree, far", "slowest row, s"): 2.5}
    assert benchmark.page_text.together([tried]) == {}
    assert "far" not in str(benchmark.page_text.frame("small", [tried]).query("explainer == 'other'"))
    text = benchmark.page_text.promises([tried])
    assert text.startswith("7 of 9 promises")
    assert text.endswith("BROKEN: far")


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"age": 30, "income": 4}, []),
        ({"age": 36}, ["age leaves its range"]),
        ({"income": 2}, ["income changes by too much"]),
        ({"income": 11}, ["income changes by too much"]),
        ({"job": "x"}, ["job may not become x"]),
    ],
)
def test_the_checker_reads_limits(benchmark, changes, faults):
    constraints = {
        "ranges": {"age": [None, 35]},
        "relative": {"income": {"up": 5, "down": 2}},
        "forbidden": {"job": [["y", "x"]]},
    }
    x0 = {"age": 40, "income": 5, "job": "y"}
    assert benchmark.independent.broken(constraints, x0, {**x0, "income": 6, **changes}) == faults


def test_the_table_of_the_documentation_is_written_between_its_marks(benchmark, tmp_path):
    table, page = benchmark.page.docs_table, tmp_path / "page.md"
    one = SimpleNamespace(model="tree", refused={}, case=SimpleNamespace(name="small", rejected=range(7)))
    told = {"geco": {"answered": 1.0, "of_nearest": 1.25, "cpu_ms": 7.44}}
    start, end = (mark.format("small") for mark in (table.START, table.END))
    page.write_text(f"before\n\n{start}\nold\n{end}\n\nafter\n")
    for _ in range(2):  # written again, it is the same
        table.write(page, [one], told, 3)
    before, _, rest = page.read_text().partition(f"{start}\n")
    written, _, after = rest.partition(f"\n{end}")
    assert (before, after) == ("before\n\n", "\n\nafter\n")
    assert "--data-sets small --models tree --rows 7 --seed 3 --docs" in written
    assert written.splitlines()[-1] == "| `geco` | 100% | 1.25 | - | - | - | 7.4 | - |"
    other = SimpleNamespace(**{**vars(one), "case": SimpleNamespace(name="other", rejected=range(7))})
    for tried, found, what in (([other], told, "lacks the line"), ([one], {}, "no model")):
        with pytest.raises(ValueError, match=what):
            table.write(page, tried, found, 3)


def test_the_tables_of_explainers_name_all_of_them(benchmark):
    text = (Path(__file__).parents[1] / "docs" / "explainers.md").read_text(encoding="utf-8")
    for name in ("adult", "credit"):
        start, end = (mark.format(name) for mark in (benchmark.page.docs_table.START, benchmark.page.docs_table.END))
        written = text.partition(start)[2].partition(end)[0]
        assert all(f"| `{explainer}` |" in written for explainer in EXPLAINERS)
