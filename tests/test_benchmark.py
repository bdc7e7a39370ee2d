"""The benchmark: its exact optima against brute force over the pipeline, its checker, and one small run."""

import contextlib
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml

BENCHMARK = Path(__file__).resolve().parent.parent / "example_projects" / "benchmark"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's modules; they are scripts that import each other, so they leave again afterwards."""
    names = ("data_sets", "independent", "tree_boxes", "measures", "published", "speed", "bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARK)
        modules = {name: __import__(name) for name in names}
        yield SimpleNamespace(**modules)
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "sex": rng.choice(["a", "b"], 150),
            "age": rng.integers(20, 32, 150),
            "job": rng.choice(["x", "y", "z"], 150),
            "income": rng.integers(0, 12, 150) / 3,
        }
    )


@pytest.fixture(scope="module")
def case(benchmark, rows):
    """A tree that is hard to please, so that some rows need two changes, and some cannot be helped."""
    rng = np.random.default_rng(1)
    good = (rows["age"] > 27) & (rows["income"] > 2) & (rows["job"] != "x") | (rng.random(150) < 0.05)
    model = benchmark.data_sets.tree(rows, 0).fit(rows.iloc[:120], good.iloc[:120].astype(int))
    asked = rows.iloc[100:]
    rejected = asked[model.predict(asked) == 0].reset_index(drop=True)
    constraints = {"immutable": ["sex"], "increasing": ["age"]}
    return benchmark.data_sets.Case("small", rows.iloc[:120], rejected, constraints, model, 1.0)


def brute_force(case, independent, x0, most):
    """The smallest l1 distance of all combinations with at most `most` changes that the pipeline accepts."""
    known = independent.known_values(case.background)
    spread = independent.spreads(case.background)
    candidates = [
        {**x0, **dict(zip(names, values, strict=True))}
        for names in itertools.combinations(x0, most)
        for values in itertools.product(*({*known[name], x0[name]} for name in names))
    ]
    candidates = [row for row in candidates if not independent.broken(case.constraints, known, x0, row)]
    if not candidates:
        return np.inf
    accepted = case.model.predict(pd.DataFrame(candidates)) == 1
    return min(
        (independent.mean_change(spread, x0, row) for row in itertools.compress(candidates, accepted)), default=np.inf
    )


def test_optima_are_those_of_brute_force(benchmark, case):
    boxes = benchmark.tree_boxes.Boxes.build(case)
    found = []
    for x0 in case.rejected.to_dict("records")[:12]:
        nearest = boxes.nearest(x0)
        for most, optimum in zip((1, 2, 4), nearest, strict=True):
            assert optimum.distance == pytest.approx(brute_force(case, benchmark.independent, x0, most))
        found.append([optimum.distance for optimum in nearest])
    single, pair, some = np.array(found).T
    assert np.isinf(single).any()
    assert np.isfinite(pair).any()
    assert (pair < single).any()
    assert np.isfinite(some).any()


def test_checker_names_what_is_broken(benchmark):
    constraints = {"immutable": ["sex"], "increasing": ["age"]}
    known = {"sex": {"a", "b"}, "age": {20, 30}, "income": {1.0}}
    x0 = {"sex": "a", "age": 25, "income": 2.0}

    def broken(**changes):
        return benchmark.independent.broken(constraints, known, x0, {**x0, **changes})

    assert broken(age=30, income=1.0) == []
    assert broken() == ["nothing changed"]
    assert broken(sex="b", age=20) == ["sex is immutable", "age fell"]
    assert broken(income=1.5) == ["income has a value the background has not"]
    with pytest.raises(ValueError, match="max_changes"):
        benchmark.independent.broken({"max_changes": 1}, known, x0, x0)


@pytest.fixture
def folder(tmp_path, monkeypatch, rows):
    """A folder of data sets in which Credit is a small generated table."""
    good = (rows["age"] > 25).astype(int)
    rows[["sex", "age", "income"]].assign(good=good).to_csv(tmp_path / "credit.csv", index=False)
    (tmp_path / "constraints").mkdir()
    constraints = {"immutable": ["sex"], "increasing": ["age"], "rules": ["IF x_cf.age > x.age THEN 1 = 2"]}
    (tmp_path / "constraints" / "credit.yaml").write_text(yaml.safe_dump(constraints))
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path))
    return tmp_path


def test_run_prints_figures_beside_the_papers(benchmark, folder, capsys):
    assert benchmark.bench.main(["--data-sets", "credit", "--rows", "4"]) == 0
    text = capsys.readouterr().out
    assert "112 background rows, 3 features" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["valid,", "asked", "again", "100.0%", "100.0%", "100.0%", "-", "-"] in lines
    assert ["rows", "with", "an", "answer", "100.0%", "100.0%", "100.0%", "100.0%", "100.0%"] in lines
    assert "A counterfactual exists for 4 rows within one change, 4 within two, 4 at all (exact)." in text
    assert "BROKEN" not in text
    # the data set's rule forbids the one change that helps, and the comparison tells
    (without,) = (line for line in lines if line[:2] == ["no", "constraints"])
    assert without[2:4] == ["3", "100.0%"]
    (with_rules,) = (line for line in lines if line[:2] == ["constraints,", "rules"])
    assert with_rules[2:4] == ["3", "0.0%"]
    assert with_rules[-4:] == ["0.90", "(9.8", "%", "faster)"]


@pytest.fixture
def adult(folder):
    """Adds a small generated table with the columns of Adult."""
    rng = np.random.default_rng(0)
    years = rng.integers(8, 13, 300)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 60, 300),
            "workclass": rng.choice(["Private", "Gov"], 300),
            "fnlwgt": 1,
            "education": [f"{number} years" for number in years],
            "education_num": years,
            "marital_status": rng.choice(["Never", "Married", "Widowed"], 300),
            "occupation": rng.choice(["Sales", "Tech", "Craft"], 300),
            "relationship": rng.choice(["Wife", "Husband", "Own-child"], 300),
            "race": "any",
            "sex": rng.choice(["Female", "Male"], 300),
            "hours_per_week": rng.integers(20, 60, 300),
            "native_country": rng.choice(["United-States", "Cuba"], 300),
        }
    )
    good = table["hours_per_week"] + table["education_num"] + 5 * (table["occupation"] == "Tech") > 55
    table.assign(high_income=good.astype(int)).to_csv(folder / "adult.csv", index=False)
    constraints = {
        "immutable": ["sex", "marital_status", "relationship", "native_country"],
        "increasing": ["age", "education_num"],
        "rules": ["IF x_cf.education_num > x.education_num THEN x_cf.age >= x.age + 4"],
    }
    (folder / "constraints" / "adult.yaml").write_text(yaml.safe_dump(constraints))
    return folder


def test_groups_of_adult_are_compared_with_the_same_columns_alone(benchmark, adult):
    speed = benchmark.speed
    levels, in_bits = contests = speed.contests(benchmark.data_sets.load_case("adult", 3, 0), 0)
    assert list(levels.regimes) == ["none", "constraints", "rules", "group"]
    assert len(levels.regimes["rules"].constraints["rules"]) == 1
    assert levels.regimes["group"].constraints == {
        **levels.regimes["constraints"].constraints,
        "groups": [("education", "education_num")],
    }
    columns = list(in_bits.case.background)
    alone, grouped = (in_bits.regimes[key].constraints for key in ("bits", "bits_grouped"))
    assert [c for c in columns if c.startswith("marital_status=")] == alone["immutable"][1:4]
    assert sorted(map(len, grouped["groups"])) == [2, 2, 3, 3, 3]
    assert set(columns) > {column for group in grouped["groups"] for column in group}
    measured = {}
    for contest in contests:
        measured.update(speed.run(contest, 0, lambda _: None))
    lines = [line.split() for line in speed.table(contests, measured).splitlines()]
    assert all(figures["search_cpu"] <= figures["whole_cpu"] for figures in measured.values())
    assert measured["bits_grouped"]["candidates"] < measured["bits"]["candidates"]
    share = measured["bits_grouped"]["candidates"] / measured["bits"]["candidates"]
    assert lines[-1][:5] == ["constraints,", "bits", "grouped", str(len(columns)), "100.0%"]
    assert lines[-1][8:11] == ["constraints,", "bits", f"{share:.2f}"]
    assert lines[-1][-2:] == ["0.71", "(1.4x)"]


def test_regimes_take_turns(benchmark, folder, monkeypatch):
    (contest,) = benchmark.speed.contests(benchmark.data_sets.load_case("credit", 4, 0), 0)
    turns = []
    figures = {"answered": 1.0, "candidates": 2.0, "search_cpu": 0.1, "whole_cpu": 0.2}
    monkeypatch.setattr(benchmark.speed, "wrapped", lambda _case, _seed, constraints: len(constraints))
    monkeypatch.setattr(benchmark.speed, "_spent", lambda key, row: turns.append((int(row.index[0]), key)) or figures)
    assert benchmark.speed.run(contest, 0, lambda _: None) == dict.fromkeys(contest.regimes, figures)
    first, *rest = (turns[at : at + 3] for at in range(3, 15, 3))
    assert first == [(0, 0), (0, 2), (0, 3)]  # after the first of each, which is not counted
    assert rest == [[(1, 2), (1, 3), (1, 0)], [(2, 3), (2, 0), (2, 2)], [(3, 0), (3, 2), (3, 3)]]


def test_figures_have_names_that_mlflow_takes(benchmark, monkeypatch):
    logged = {}
    monkeypatch.setattr(mlflow, "start_run", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(mlflow, "log_params", logged.update)
    monkeypatch.setattr(mlflow, "log_metrics", logged.update)
    figures = {method: {"validity": 1.0} for method in benchmark.bench.EXPLAINERS}
    regimes = {"bits_grouped": {"search_cpu": 0.5}}
    benchmark.bench._log({"credit": benchmark.bench.Report(figures, regimes, [])}, {"seed": 0})
    assert logged["seed"] == 0
    assert logged["credit/geco/validity"] == 1
    assert logged["credit/regime bits_grouped/search_cpu"] == 0.5
    assert all(re.fullmatch(r"[\w\-. :/]+", name) for name in logged)


def test_reported_distance_is_the_papers(benchmark, folder):
    case = benchmark.data_sets.load_case("credit", 4, 0)
    explained = benchmark.bench.wrapped(case, 0)
    spread = benchmark.independent.spreads(case.background)
    for asked in benchmark.measures.ask(explained, explained.explainer, case.rejected, lambda _: None):
        distance = asked.explanation.counterfactuals[0].distance
        assert distance == pytest.approx(benchmark.independent.mean_change(spread, asked.x0, asked.row))


def test_broken_promises_are_named(benchmark, case):
    wrong = dict(case.rejected.iloc[0], age=20)
    answer = SimpleNamespace(x0=dict(case.rejected.iloc[0], age=25), row=wrong, explanation=None)
    nothing = SimpleNamespace(x0=answer.x0, row=None, explanation=SimpleNamespace(reason="gave up"))
    optimum = [benchmark.tree_boxes.Nearest(0.1, wrong)] * 3
    lines = benchmark.bench._broken(case, {"geco": [nothing], "nearest_row": [answer]}, [optimum])
    assert "geco found nothing for row 0 (gave up)" in lines[0]
    assert any("nearest_row, row 0: age fell" in line for line in lines)


def test_no_data_is_a_clear_message(benchmark, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match="MLFLOW_CF_DATA=/path/to/data make bench"):
        benchmark.bench.main(["--data-sets", "credit"])
    with pytest.raises(SystemExit, match="'credits' is none of credit, adult"):
        benchmark.bench.main(["--data-sets", "credits"])
