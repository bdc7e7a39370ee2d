"""The benchmark: its exact optima against brute force over the pipeline, its checker, its promises, small runs."""

import itertools
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.explainers import EXPLAINERS

BENCHMARK = Path(__file__).resolve().parent.parent / "example_projects" / "benchmark"

# MLflow selects columns of type object when it logs a table.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")


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
    labels = good.iloc[:120].astype(int)
    model = benchmark.models.as_published(rows, 0).fit(rows.iloc[:120], labels)
    asked = rows.iloc[100:]
    rejected = asked[model.predict(asked) == 0].reset_index(drop=True)
    constraints = {"immutable": ["sex"], "increasing": ["age"]}
    return benchmark.data_sets.Case("small", rows.iloc[:120], labels, rejected, constraints, model, 1.0)


def brute_force(case, independent, x0, most):
    """The smallest l1 distance of all combinations with at most `most` changes that the pipeline accepts."""
    known = independent.known_values(case.background)
    spread = independent.spreads(case.background)
    candidates = [
        {**x0, **dict(zip(names, values, strict=True))}
        for names in itertools.combinations(x0, most)
        for values in itertools.product(*({*known[name], x0[name]} for name in names))
    ]
    candidates = [row for row in candidates if not independent.broken(case.constraints, x0, row)]
    if not candidates:
        return np.inf
    accepted = case.model.predict(pd.DataFrame(candidates)) == 1
    return min(
        (independent.distance((0, 1), spread, x0, row) for row in itertools.compress(candidates, accepted)),
        default=np.inf,
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
    checker = benchmark.independent
    constraints = {"immutable": ["sex"], "increasing": ["age"]}
    x0 = {"sex": "a", "age": 25, "income": 2.0}

    def broken(**changes):
        return checker.broken(constraints, x0, {**x0, **changes})

    assert broken(age=30, income=1.0) == []
    assert broken() == ["nothing changed"]
    assert broken(sex="b", age=20) == ["sex is immutable", "age fell"]
    known = {"sex": {"a", "b"}, "age": {20, 30}, "income": {1.0}}
    assert checker.unknown(known, x0, {**x0, "income": 1.0}) == []
    assert checker.unknown(known, x0, {**x0, "income": 1.5}) == ["income has a value the background has not"]
    with pytest.raises(ValueError, match="max_changes"):
        checker.broken({"max_changes": 1}, x0, x0)
    with pytest.raises(ValueError, match="rules"):
        checker.allowed({"rules": []}, "age", 25, np.array([30]))


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("IF x_cf.age > x.age THEN x_cf.debt >= x.debt + 4", True),
        ("IF x_cf.age > x.age THEN x_cf.debt > x.debt + 4", False),
        ("IF x_cf.age > x.age + 2 THEN 1 == 2", True),
        ("IF x_cf.age > x.age + 1 and x.debt < 3 THEN x_cf.debt == 6", True),
        ("IF x_cf.age > x.age + 1 or x.debt > 9 THEN x_cf.debt != 6", False),
        ("IF x_cf.job == 'clerk' THEN x_cf.age <= x.age - 1", False),
    ],
)
def test_checker_reads_rules(benchmark, rule, holds):
    x0, row = {"age": 20, "debt": 2, "job": "none"}, {"age": 22, "debt": 6, "job": "clerk"}
    assert benchmark.independent.meets(rule, x0, row) is holds
    assert benchmark.independent.broken({"rules": [rule]}, x0, row) == ([] if holds else [f"against {rule}"])


@pytest.mark.parametrize(
    "rule", ["x_cf.age > x.age", "IF f(x.age) THEN x_cf.age > 1", "IF 1 < x.age < 3 THEN x.age > 1"]
)
def test_checker_refuses_rules_it_cannot_read(benchmark, rule):
    with pytest.raises(ValueError, match="cannot read"):
        benchmark.independent.meets(rule, {"age": 2}, {"age": 3})


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
    assert benchmark.bench.main(["--parts", "paper", "--data-sets", "credit", "--rows", "4"]) == 0
    text = capsys.readouterr().out
    assert "112 background rows, 3 features" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["valid,", "asked", "again", *["100.0%"] * 4, "-", "-"] in lines
    assert ["rows", "with", "an", "answer", *["100.0%"] * 6] in lines
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
    speed = benchmark.regimes
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
    (contest,) = benchmark.regimes.contests(benchmark.data_sets.load_case("credit", 4, 0), 0)
    turns = []
    figures = {"answered": 1.0, "candidates": 2.0, "search_cpu": 0.1, "whole_cpu": 0.2}
    monkeypatch.setattr(benchmark.regimes, "wrapped", lambda _case, _seed, constraints: len(constraints))
    monkeypatch.setattr(benchmark.regimes, "_spent", lambda key, row: turns.append((int(row.index[0]), key)) or figures)
    assert benchmark.regimes.run(contest, 0, lambda _: None) == dict.fromkeys(contest.regimes, figures)
    first, *rest = (turns[at : at + 3] for at in range(3, 15, 3))
    assert first == [(0, 0), (0, 2), (0, 3)]  # after the first of each, which is not counted
    assert rest == [[(1, 2), (1, 3), (1, 0)], [(2, 3), (2, 0), (2, 2)], [(3, 0), (3, 2), (3, 3)]]


@pytest.mark.parametrize("weights", [(0.0, 1.0), (0.5, 0.5)])
def test_reported_distance_is_the_formula(benchmark, case, weights):
    explained = mlflow_cf.wrap(
        case.model, case.background, constraints=case.constraints, target=1, distance=(*weights, 0.0)
    )
    rows = case.rejected.head(6)
    method = benchmark.turns.Ours(explained, explained.explainer)
    asked = benchmark.turns.take_turns({"geco": method}, rows, lambda _: None)["geco"]
    told = benchmark.measures.answers(case, asked, weights)
    assert told["answered"].any()
    for at in told.index[told["answered"]]:
        (found,) = explained.explain(rows.iloc[[at]])
        assert asked[at].row == found.counterfactuals[0].row
        assert told["distance"][at] == pytest.approx(found.counterfactuals[0].distance)


def test_broken_promises_are_named(benchmark, case):
    turns = benchmark.turns
    x0 = {**case.rejected.iloc[0].to_dict(), "age": 25}
    wrong = turns.Asked(x0, turns.Reply({**x0, "age": 20}), 0.1, 0.1)
    nothing = turns.Asked(x0, turns.Reply(None, "gave up"), 0.1, 0.1)
    lines = {
        name: benchmark.measures.answers(case, [asked], (0, 1))
        for name, asked in {"geco": nothing, "nearest_row": wrong}.items()
    }
    optimum = [benchmark.tree_boxes.Nearest(0.1, wrong.row)] * 3
    (missed,) = benchmark.paper._misses(lines, [optimum])
    assert missed == "BROKEN: geco found nothing for row 0 (gave up), but one or two changes do"
    assert benchmark.measures.broken_promises("geco", lines["geco"]) == []
    assert "BROKEN: nearest_row, row 0: age fell" in benchmark.measures.broken_promises(
        "nearest_row", lines["nearest_row"]
    )
    # an answer against a constraint is no proof that there is one
    assert benchmark.contest.missed(lines) == []
    good = lines["nearest_row"].assign(valid=True, lawful=True)
    assert benchmark.contest.missed({**lines, "nearest_row": good}) == [
        "BROKEN: geco found nothing for row 0, but nearest_row did"
    ]


def test_no_data_is_a_clear_message(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match="MLFLOW_CF_DATA=/path/to/data make bench"):
        benchmark.bench.main(["--data-sets", "credit"])
    assert benchmark.bench.options().parse_args([]).data_sets == ["loans"]
    with pytest.raises(SystemExit):
        benchmark.bench.main(["--data-sets", "credits"])
    assert "'credits' is none of adult, credit, compas, bankloan, german, loans" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        benchmark.bench.main(["--rows", "-1"])
    assert "'-1' is no number of rows" in capsys.readouterr().err


def lines(**columns):
    """Two answers, right and lawful unless told otherwise."""
    good = {"answered": True, "valid": True, "lawful": True, "known": True}
    return pd.DataFrame({**{key: [value] * 2 for key, value in good.items()}, "distance": [0.2, 0.4], **columns})


def test_promises_are_ratios_of_one_run(benchmark):
    gates = benchmark.gates
    told = {gates.GECO: lines(), gates.SAMPLING: lines(distance=[0.2, 0.5]), gates.RIVAL: lines(distance=[0.1, 0.4])}
    measured = {
        gates.GECO: {"validity": 1.0, "lawful": 0.5, "search_ms": 2.0, "search_tail": 5.0, "of_dice_search": 45.0},
        gates.PIPELINE: {"search_ms": 20.0},
        gates.RIVAL: {"cpu_ms": 90.0},
    }
    found = {gate.what: gate for gate in gates.gates("adult", "xgboost", told, measured)}
    assert {what: (gate.found, gate.kept) for what, gate in found.items()} == {
        "valid": (1.0, True),
        "lawful": (0.5, False),
        "search CPU, 95 % / median": (5.0, False),
        "search CPU ms": (2.0, True),
        "CPU, dice-ml / search of geco": (45.0, False),
        "search CPU, geco pipeline / geco": (10.0, True),
        "mean distance, geco / geco sampling": (pytest.approx(0.3 / 0.35), True),
        "at least as near as dice random": (0.5, False),
    }
    assert str(found["lawful"]) == "  MISSED lawful: 0.5 (>= 1)"
    # whole calls are promised where they were measured
    measured[gates.GECO] |= {"of_dice": 11.0, "of_nice": 3.0, "own_ms": 3.5}
    called = [gate for gate in gates.gates("adult", "xgboost", told, measured) if gate.what not in found]
    assert [(gate.what, gate.kept) for gate in called] == [
        ("CPU of one row, nice / geco", True),
        ("CPU of one row, dice / geco", False),
        ("CPU ms of a reply besides the model's calls", False),
    ]
    assert not [gate for gate in gates.gates("adult", "tree", told, measured) if "one row" in gate.what]
    assert not [gate for gate in gates.gates("loans", "xgboost", told, measured) if "one row" in gate.what]
    # on Credit fewer times are promised, on generated data none
    ratios = {data: gates.gates(data, "xgboost", told, measured) for data in ("credit", "loans")}
    assert [gate.kept for gate in ratios["credit"] if gate.what.startswith("CPU, dice")] == [True]
    assert [gate for gate in ratios["loans"] if gate.what.startswith("CPU, dice") or "ms" in gate.what] == []


def test_ratios_to_dice_are_told_for_the_search_a_batch_and_a_single_row(benchmark):
    gates = benchmark.gates
    own = {"search_ms": 2.0, "search_tail": 1.5, "batch_ms": 3.0, "cpu_ms": 12.0}
    own |= {"of_dice_search": 50.0, "of_dice_batch": 33.0, "of_dice": 8.0}
    sampling, pipeline = {"search_ms": 20.0}, {"search_ms": 80.0}
    everything = {gates.GECO: own, gates.SAMPLING: sampling, gates.PIPELINE: pipeline, gates.RIVAL: {"cpu_ms": 100.0}}
    table = benchmark.summary.table(
        {("adult", "tree"): everything, ("loans", "tree"): {gates.GECO: {"batch_ms": 3.0, "cpu_ms": 12.0}}},
        {("adult", "tree"): 3.5},
    )
    head, adult, loans = (line.split("   ") for line in table.splitlines())
    assert [cell.strip() for cell in head if cell.strip()] == list(benchmark.summary.HEADS[1:])
    told = "adult / tree 2 3 1.5 3 12 7 100 50 50 33 8 40 10 4"
    assert " ".join(cell.strip() for cell in adult if cell.strip()) == told
    told = "loans / tree - 3 - 3 12 - - - - - - - 10 -"
    assert " ".join(cell.strip() for cell in loans if cell.strip()) == told


def seconds(proved, distance, cpu, search):
    return lines(distance=distance, proved=proved, cpu=cpu, search=search, changed=[1.0, 2.0])


def test_certificates_are_the_time_beyond_the_search_and_the_gap_to_the_optimum(benchmark):
    found = benchmark.certificates.Certificates.measure(
        seconds([False, False], [0.2, 0.5], [0.010, 0.012], [0.001, 0.002]),
        seconds([True, True], [0.2, 0.4], [0.013, 0.018], [0.001, 0.002]),
    )
    assert (found.proved, found.optimal, found.near) == (1.0, 0.5, 0.5)
    assert found.gap == pytest.approx(0.125)
    assert (found.search_ms, found.certificate_ms, found.proof_ms) == pytest.approx((1.5, 4.5, 6.0))
    assert found.one_change_ms == pytest.approx(3.0)
    assert (found.share, found.longest_ms, found.whole_ms) == pytest.approx((9 / 12, 8.0, 15.5))
    assert [gate.kept for gate in found.gates("adult", "xgboost")] == [True, False, True]
    assert [gate.kept for gate in found.gates("adult", "tree")] == [True, False, False]
    assert [gate.kept for gate in found.gates("adult", "forest_500")] == [True, False, True]
    assert [gate.kept for gate in found.gates("loans", "tree")] == [True, False]


def test_optima_are_compared_only_where_they_are_proved(benchmark):
    measure = benchmark.certificates.Certificates.measure
    own = seconds([False, False], [0.2, np.nan], [0.010, 0.010], [0.001, np.nan])
    # a row without an answer that has a proved optimum counts against GeCo; a row proved hopeless counts for nobody
    assert measure(own, seconds([True, True], [0.2, 0.4], 0.02, 0.001)).near == 0.5
    hopeless = measure(own, seconds([True, True], [0.2, np.nan], 0.02, 0.001))
    assert (hopeless.proved, hopeless.near, hopeless.gap) == (1.0, 1.0, 0.0)
    nothing = measure(own, seconds([False, False], [0.2, 0.4], 0.02, 0.001))
    assert [gate.kept for gate in nothing.gates("adult", "tree")] == [False, False]
    assert "near" not in nothing.figures()
    (_, line) = benchmark.certificates.table({"adult / tree": nothing}).splitlines()
    assert line.split()[:7] == ["adult", "/", "tree", "0.0%", "-", "-", "-"]


def test_large_models_are_proved_only_where_that_is_promised(benchmark):
    assert [benchmark.certificates.promised("adult", model) for model in benchmark.models.LARGE] == [True, True]
    assert [benchmark.certificates.promised("credit", model) for model in benchmark.models.LARGE] == [True, False]
    assert [benchmark.certificates.promised("loans", model) for model in benchmark.models.LARGE] == [False, False]


def test_answers_with_further_requirements_are_compared_on_the_same_rows(benchmark, case):
    lines = benchmark.further.run(case, "tree", 0)
    wanted, robust, plausible = (
        lines[wish] for wish in (benchmark.further.PLAIN, "robust_to another version", "plausible")
    )
    assert {line.proved for line in lines.values()} == {1.0}
    assert (robust.holding, plausible.inside) == (1.0, 1.0)
    assert wanted.found >= robust.found
    assert "robust_to another version" in benchmark.further.table({"small / tree": lines})
    *kept, _ = benchmark.further.gates(lines)
    assert all(gate.kept for gate in kept)


def test_what_is_promised_to_survive_stands_beside_what_does(benchmark, monkeypatch):
    survival = benchmark.survival
    small = {"HOLDS": 0.5, "LATER": 3, "LEARNED": 200, "MARGINS": (0.1,), "CHECKED": 2, "CERTIFIED": 3}
    for name, value in small.items():
        monkeypatch.setattr(survival, name, value)
    parts = benchmark.data_sets.split("loans", 0, benchmark.data_sets.every_column)
    line = survival.run(parts, "logistic", 3, 0, {})
    assert line.of == 6
    assert line.promised == 7 / 8
    assert 0 <= line.observed <= 1
    assert 0 <= line.checked <= line.found <= 1
    case = parts.case(benchmark.models.fitted("logistic", parts.X, parts.y, 0), 2, {})
    cost = survival.certified(case, 0)
    assert (cost["one proved"], cost["many proved"]) == (1.0, 1.0)
    assert not survival.cost_gate({"one": 1.0, "many": 6.0}).kept
    assert survival.gates({"loans": line})[0].what.startswith("share of configurations")
    assert "loans" in survival.table({"loans": line})


def test_proofs_that_an_answer_contradicts_are_named(benchmark):
    contradicted = benchmark.certificates.contradicted
    exact = lines(distance=[0.2, np.nan], proved=[True, True])
    assert contradicted({"exact": exact, "geco": lines(distance=[0.2, np.nan])}) == []
    assert contradicted({"exact": exact, "geco": lines(distance=[0.1, 0.3])}) == [
        "BROKEN: exact proved row 0 wrongly: geco is nearer",
        "BROKEN: exact proved row 1 wrongly: geco is nearer",
    ]
    assert contradicted({"exact": exact, "dice": lines(distance=[0.1, 0.3], known=[True, False], valid=False)}) == []
    assert contradicted({"exact": exact.assign(proved=False), "geco": lines(distance=[0.1, 0.3])}) == []


def test_a_wrong_answer_is_not_nearer(benchmark):
    near = benchmark.gates.as_near
    assert near(lines(), lines(distance=[0.1, 0.1])) == 0
    assert near(lines(), lines(distance=[0.1, 0.1], lawful=[False, True])) == 0.5
    assert near(lines(), lines(distance=[0.1, 0.1], valid=[False, False])) == 1
    assert near(lines(distance=[np.nan, 0.1]), lines()) == 0.5
    assert near(lines(distance=[np.nan, 0.1]), lines(distance=[np.nan, np.nan])) == 1


@pytest.mark.parametrize("method", ["random", "genetic", "kdtree"])
def test_dice_is_told_what_it_understands(benchmark, case, method):
    dice = benchmark.rival_dice.Dice.build(case, method, 0)
    assert dice.vary == ["age", "job", "income"]
    rows = case.rejected.head(4)
    replies = [dice(rows.iloc[[at]]) for at in range(len(rows))]
    assert any(reply.row for reply in replies)
    for x0, reply in zip(rows.to_dict("records"), replies, strict=True):
        if reply.row is None:
            assert reply.reason
        else:
            assert list(reply.row) == list(x0)
            assert reply.row["sex"] == x0["sex"]
            assert method == "kdtree" or reply.row["age"] >= x0["age"]
    rules = replace(case, constraints={**case.constraints, "rules": ["IF x_cf.age > 1 THEN x_cf.age > 2"]})
    assert benchmark.rival_dice.untold(case) == []
    assert benchmark.rival_dice.untold(rules) == ["rules"]


def test_dice_refuses_a_level_it_never_saw(benchmark, case):
    row = case.rejected.head(1).assign(job="new")
    reply = benchmark.rival_dice.Dice.build(case, "random", 0)(row)
    assert reply.row is None
    assert "outside the dataset" in reply.reason


class Counting:
    """A structure that tells what it was asked to score; those it is restricted to tell it too."""

    def __init__(self, row, changed, cells):
        self.row, self.changed, self.cells = row, changed, cells

    def restrict(self, row, changed):
        return Counting(row, changed, self.cells)

    def sweep(self, rows, values):
        for column, encoded in enumerate(values):
            for t in () if encoded is None else encoded:
                for at in range(len(rows[0])):
                    cell = [float(own) for own in self.row]
                    for place, part in zip(self.changed, rows, strict=True):
                        cell[place] = float(part[at])
                    cell[self.changed[column]] = float(t)
                    self.cells.append(tuple(cell))


def test_sweeps_of_pairs_score_every_pair_once(benchmark):
    known = [np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]), np.array([0.0, 1.0, 2.0, 3.0])]
    x0 = np.zeros(3)
    structure = Counting(x0, range(3), [])
    benchmark.structure_speed._sweep_pairs(structure, [x0[[column]] for column in range(3)], known)
    pairs = {cell for cell in itertools.product(*known) if sum(value != 0 for value in cell) <= 2}
    assert set(structure.cells) == pairs
    assert len(structure.cells) == 3 * 2 + 3 * 4 + 2 * 4
    singles = benchmark.structure_speed._singles(x0, known)
    assert {tuple(row) for row in singles.tolist()} == {cell for cell in pairs if sum(v != 0 for v in cell) <= 1}


def test_a_closed_model_has_no_structure_to_time(benchmark, case):
    explained = mlflow_cf.wrap(case.model, case.background, target=1)
    closed = replace(explained, opened=benchmark.contest.CLOSED)
    assert benchmark.structure_speed.measure(case, closed, 0) is None


def test_structures_are_promised_to_be_fast(benchmark):
    speed = benchmark.structure_speed.Speed(
        score={50: 0.1}, rows={50: 0.2, 1_000: 1.0}, pipeline={50: 9.0, 1_000: 3.0}, differ=1, singles=9, pairs=99,
        singles_sweep=0.2, singles_score=0.4, pairs_score=20.0, partial={1: 2.0},
    )  # fmt: skip
    assert [gate.kept for gate in speed.gates("adult", "forest")] == [False, True, False, True, False]
    assert [gate.kept for gate in speed.gates("adult", "mlp")] == [False, True, False]
    assert len(speed.gates("credit", "forest")) == 1


def test_contest_runs_anywhere_and_is_logged(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    speed = benchmark.structure_speed
    monkeypatch.setattr(speed, "COMPARED", 2_000)
    monkeypatch.setattr(speed, "_in_turns", partial(speed._in_turns, repeats=3))
    before = mlflow.get_tracking_uri()
    try:
        asked = ["--parts", "contest", "--models", "tree,logistic", "--rows", "2"]
        code = benchmark.bench.main([*asked, "--store", str(tmp_path / "runs")])
        logged = mlflow.search_runs(experiment_names=["benchmark"], output_format="list")
        tables = {
            run.info.run_name: [f.path for f in mlflow.MlflowClient().list_artifacts(run.info.run_id)] for run in logged
        }
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_experiment("Default")
    text = capsys.readouterr().out
    assert code == 0, text
    assert "dice-ml was not told of: rules" in text
    assert "kept   lawful: 1 (>= 1)" in text
    runs = {run.info.run_name: run for run in logged}
    assert set(runs) == {"benchmark", "loans / tree", "loans / logistic"}
    tree = runs["loans / tree"]
    assert tree.data.tags["mlflow.parentRunId"] == runs["benchmark"].info.run_id
    assert tree.data.metrics["geco/validity"] == tree.data.metrics["geco/lawful"] == 1
    assert tree.data.metrics["decisions_differ"] == 0
    assert tree.data.metrics["proofs/proved"] == 1
    assert "=== GeCo beside dice-ml and the pipeline: CPU" in text
    methods = {key.split("/")[0] for key in tree.data.metrics if "/" in key}
    own = {*EXPLAINERS, "geco sampling", "geco pipeline"}
    nice = {"nice"} if benchmark.rival_nice.INSTALLED else set()
    assert methods == {*own, *nice, "dice random", "proofs"}
    assert (benchmark.rival_nice.LEFT_OUT in text) is not bool(nice)
    assert tree.data.metrics["geco/of_dice"] == pytest.approx(
        tree.data.metrics["dice random/cpu_ms"] / tree.data.metrics["geco/cpu_ms"]
    )
    assert tables["loans / tree"] == ["answers.json", "gates.json", "methods.json"]
    assert tables["benchmark"] == ["methods.json"]


def test_the_exact_part_runs_anywhere_and_is_logged(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    chosen = benchmark.bench.options().parse_args(["--parts", "exact", "--models", "tree", "--rows", "3"])
    with mlflow.start_run() as run:
        assert benchmark.bench.PARTS["exact"](chosen) == []
    (nested,) = mlflow.search_runs(filter_string=f"tags.mlflow.parentRunId = '{run.info.run_id}'", output_format="list")
    assert nested.info.run_name == "loans / tree, exact"
    assert nested.data.metrics["proofs/proved"] == 1
    text = capsys.readouterr().out
    assert "kept   " not in text
    assert "loans / tree   100.0%" in text
    assert "2 of 2 promises about speed and distance were kept." in text


def test_generated_data_is_the_same_for_a_seed(benchmark):
    sizes = {"loans": 9, "many_levels": 29, "many_numbers": 310}
    assert set(benchmark.generated.GENERATORS) == set(benchmark.generated.CONSTRAINTS) == set(sizes)
    for name, generator in benchmark.generated.GENERATORS.items():
        one, two = generator(0), generator(0)
        pd.testing.assert_frame_equal(one, two)
        assert one.shape == (benchmark.generated.ROWS, sizes[name] + 1)
        assert 0.3 < one.iloc[:, -1].mean() < 0.7
    assert sum(benchmark.generated.many_levels(0).iloc[:, :-1].nunique()) == 548


def test_project_hands_its_parameters_to_the_command_line(benchmark):
    project = yaml.safe_load((BENCHMARK / "MLproject").read_text(encoding="utf-8"))
    main = project["entry_points"]["main"]
    values = {name: settings["default"] for name, settings in main["parameters"].items()}
    command = shlex.split(main["command"].format(**{name: shlex.quote(str(v)) for name, v in values.items()}))
    assert command[:2] == ["python", "bench.py"]
    given = benchmark.bench.options().parse_args(command[2:])
    assert given == benchmark.bench.options().parse_args([])


def test_project_goes_on_with_the_run_that_mlflow_made_for_it(benchmark, monkeypatch):
    asked = []
    monkeypatch.setitem(benchmark.bench.PARTS, "contest", lambda chosen: asked.append(chosen.models) or ["BROKEN"])
    with mlflow.start_run() as run:
        mlflow.log_params({"models": "tree", "rows": "0", "dice": "''"})
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    assert benchmark.bench.main(["--parts", "contest", "--models", "tree"]) == 1
    again = mlflow.get_run(run.info.run_id)
    assert asked == [["tree"]]
    assert again.data.tags["benchmark.models"] == "['tree']"
    assert again.data.metrics == {"broken": 1}


def test_ocl_runs_and_keeps_what_it_promises(benchmark, data_file, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_CF_DATA", str(data_file("compas.csv").parent))
    monkeypatch.setattr(benchmark.ocl, "DATA_SETS", ("compas",))
    monkeypatch.setattr(benchmark.ocl, "MODELS", {"cart": benchmark.ocl.MODELS["cart"]})
    chosen = benchmark.bench.options().parse_args(["--parts", "ocl", "--rows", "2"])
    with mlflow.start_run():
        assert benchmark.bench.PARTS["ocl"](chosen) == []
    printed = capsys.readouterr().out
    assert "compas / cart, 3 answers, in the hull" in printed
    assert "paper" in printed


def test_ocl_promises_what_the_paper_has(benchmark):
    figures, errors = {"validity": 1.0, "cont prox": -16.0, "sparsity": 0.9}, {"cont prox": 1.0, "sparsity": 0}
    line = benchmark.ocl.Line(any_answer=1.0, answered=0.5, figures=figures, errors=errors, ms=1.0)
    key = ("compas", "rf", 1, "")
    assert [gate.kept for _, gate in benchmark.ocl.gates({key: line})] == [True] * 4
    far = replace(line, any_answer=0.5, figures={**figures, "cont prox": -18.0, "validity": np.nan})
    assert [gate.kept for _, gate in benchmark.ocl.gates({key: far})] == [False, False, False, True]


def test_several_answers_stand_beside_one(benchmark, capsys):
    chosen = benchmark.bench.options().parse_args(
        ["--parts", "several", "--data-sets", "loans", "--models", "tree", "--rows", "2"]
    )
    with mlflow.start_run():
        assert benchmark.bench.PARTS["several"](chosen) == []
    printed = capsys.readouterr().out
    assert "loans / tree l1" in printed
    assert "CPU of 5 certified answers / of one" in printed or "were kept" in printed


def test_several_answers_promise_what_they_cost(benchmark):
    ones = np.ones(2)
    certified = {count: count * ones for count in benchmark.several.CERTIFIED}
    ms = dict.fromkeys(certified, 1.0)
    kept = benchmark.several.Several(
        {"first": ones, "all five": 2 * ones}, 2.5 * ones, 3 * ones, ones, certified, ms, 1.0
    )
    assert all(gate.kept for gate in kept.gates())
    near = {"first": np.array([1.0, np.nan, 1.03]), "all five": ones}
    missed = replace(kept, near=near, cpu=3 * ones, calls=np.array([1.0, 4.0]), certified={**certified, 5: 6 * ones})
    assert [gate.kept for gate in missed.gates()] == [False, False, False, True, True, False]


def test_programs_agree_with_best_first_search(benchmark, capsys):
    chosen = benchmark.bench.options().parse_args(
        ["--parts", "programs", "--data-sets", "loans", "--models", "logistic", "--rows", "2"]
    )
    with mlflow.start_run():
        assert benchmark.bench.PARTS["programs"](chosen) == []
    assert "certified" in capsys.readouterr().out


def test_programs_count_what_they_take_beyond_geco(benchmark):
    both = benchmark.programs.Both(1.0, 1.0, geco_ms=10.0, first_ms=12.0, program_ms=60.0)
    assert both.ratio == 25.0
    assert replace(both, first_ms=9.0).ratio == 500.0
    real = benchmark.programs.Continuous(certified=1.0, ms=5.0, same=0.5)
    kept = [gate.kept for _, gate in benchmark.programs.gates({"adult / tree": both}, {"credit / mlp": real})]
    assert kept == [True, True, True, False]


def test_another_solver_finds_the_distance_by_hand(benchmark):
    rows = pd.DataFrame({"a": [0.0, 10.0, 4.0], "b": [0.0, 5.0, 1.0]})
    scaled = ColumnTransformer([("numbers", StandardScaler(), ["a", "b"])])
    model = make_pipeline(scaled, LogisticRegression()).fit(rows, [0, 1, 0])
    border = benchmark.by_scipy.nearest_distance(model, rows, rows.iloc[[2]])
    moved = [
        benchmark.by_scipy.nearest_distance(model, rows, rows.iloc[[2]].assign(a=a)) for a in np.linspace(4, 10, 25)
    ]
    assert moved == sorted(moved, reverse=True)
    assert border > 0.25
