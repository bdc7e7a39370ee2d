"""The benchmark's peers on trees alone: what is asked of them, one metric for all, its promises, small runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest

BENCHMARK = Path(__file__).resolve().parent.parent / "example_projects" / "benchmark"

# MLflow selects columns of type object when it logs a table.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")


@pytest.fixture(scope="module")
def shape(benchmark):
    return benchmark.tree_cases.Shape(8, 4, 30, 3)


@pytest.fixture(scope="module")
def case(shape):
    return shape.case(0)


def test_drawn_models_are_the_same_for_a_seed_and_reject_what_is_asked(benchmark, shape, case):
    again = shape.case(0)
    pd.testing.assert_frame_equal(case.rejected, again.rejected)
    assert case.name == "8 features 4 free / xgboost 30 x 3"
    assert len(case.constraints["immutable"]) == 4
    assert (case.model.predict(case.rejected) == 0).all()
    assert case.rejected.ge(case.background.min()).all(axis=None)
    assert case.rejected.le(case.background.max()).all(axis=None)
    assert len(benchmark.tree_cases.first(case, 3).rejected) == 3


def test_rows_are_picked_by_how_far_they_are_from_turning(benchmark, case):
    exact = benchmark.turns.Ours(case.wrapped(0), benchmark.tree_contest.Exact())
    few = replace(case, rejected=case.rejected.head(30))
    picked = benchmark.tree_cases.one_change(few, 30).rejected

    def changes(rows):
        told = benchmark.tree_contest.judged(case, benchmark.turns.take_turns({"exact": exact}, rows, print)["exact"])
        return told["changed"].tolist()

    assert 0 < len(picked) < 30
    assert set(changes(picked)) == {1.0}
    others = few.rejected.merge(picked, how="left", indicator=True)
    # other rows may still turn by a value between those that were tried, but not all of them do
    assert set(changes(few.rejected[(others["_merge"] == "left_only").to_numpy()])) != {1.0}
    spread = benchmark.tree_cases.spread_out(case, 4).rejected
    probability = case.model.predict_proba(spread)[:, 1]
    assert len(spread) == 4
    assert (np.diff(probability) <= 0).all()


@pytest.mark.parametrize("exact", [False, True])
def test_treecf_is_asked_for_the_same_and_measured_as_we_are(benchmark, case, exact):
    peer = benchmark.rival_treecf.Treecf.build(case, 0, 5.0, exact=exact)
    rows = case.rejected.head(4)
    alone = [peer(rows.iloc[[at]]) for at in range(4)]
    asked = [
        benchmark.turns.Asked(x0, reply, 0.0, 0.0) for x0, reply in zip(rows.to_dict("records"), alone, strict=True)
    ]
    told = benchmark.tree_contest.judged(case, asked)
    assert told["right"].all()
    assert told["proved"].tolist() == [exact] * 4
    for at, cost in enumerate(told["cost"]):
        found = peer.explainer.explain(rows.to_numpy()[at], peer.target, **peer.options)
        assert cost == pytest.approx(found.distance + found.n_changed)
    together = peer.in_one_call(rows)
    assert [reply.proved for reply in together] == [exact] * 4
    if exact:
        assert [reply.row for reply in together] == [reply.row for reply in alone]


def test_treecf_says_when_there_is_nothing(benchmark, case):
    fixed = replace(case, constraints={"immutable": list(case.background)})
    reply = benchmark.rival_treecf.Treecf.build(fixed, 0, 5.0, exact=True)(case.rejected.head(1))
    assert (reply.row, reply.reason, reply.proved) == (None, "treecf found nothing", True)


def test_forests_are_asked_for_their_average(benchmark, case):
    forest = benchmark.tree_cases.RandomForestClassifier(5, max_depth=3, random_state=0)
    averaged = replace(case, model=forest.fit(case.background, case.labels))
    rows = averaged.background[forest.predict(averaged.background) == 0].head(3)
    peer = benchmark.rival_treecf.Treecf.build(averaged, 0, 5.0, exact=True)
    found = pd.DataFrame([reply.row for reply in peer.in_one_call(rows)])
    assert (forest.predict_proba(found)[:, 1] >= 0.5).all()


@pytest.mark.parametrize("exact", [False, True])
def test_levels_that_catboost_takes_are_asked_for_and_told(benchmark, case, exact):
    levels = np.array(["a", "b", "c"])[np.arange(len(case.background)) % 3]
    rows = case.background.assign(home=levels, f0=case.background["f0"])
    labels = ((rows["home"] == "b") ^ (rows["f1"] > 0.5)).astype(int)
    model = benchmark.tree_cases.CREDIT["catboost 100 x 6"](0).set_params(iterations=20, cat_features=["home"])
    rejected = rows[model.fit(rows, labels).predict(rows) == 0].head(6).reset_index(drop=True)
    fixed = {"immutable": [name for name in rows if name not in ("home", "f2")]}
    mixed = replace(
        case, model=model, background=rows, rejected=rejected, constraints=fixed, levels={"home": ["a", "b", "c", "d"]}
    )
    peer = benchmark.rival_treecf.Treecf.build(mixed, 0, 5.0, exact=exact)
    replies = [peer(rejected.iloc[[at]]) for at in range(len(rejected))]
    found = pd.DataFrame([reply.row for reply in replies]).astype(rows.dtypes)
    assert (model.predict(found) == 1).all()
    assert set(found["home"]) <= {"a", "b", "c"}
    assert (found["home"] != rejected["home"]).any()
    assert [reply.row for reply in peer.in_one_call(rejected)] == [reply.row for reply in replies] or not exact
    own = benchmark.turns.Ours(mixed.wrapped(0, "continuous"), benchmark.tree_contest.Exact())
    turns = benchmark.turns.take_turns({"own": own, "peer": peer}, rejected, print)
    costs = {name: benchmark.tree_contest.judged(mixed, asked)["cost"] for name, asked in turns.items()}
    assert (costs["own"] <= costs["peer"] + benchmark.tree_contest.SAME).all()


def figures(benchmark, **changes):
    line = {
        "answered": 1.0,
        "valid": 1.0,
        "changed": 1.0,
        "cost": 1.5,
        "proved": 1.0,
        "single_ms": 5.0,
        "batch_ms": 4.0,
    }
    return benchmark.tree_contest.Line(**{**line, **changes})


def tried(benchmark, *, real=True, exact=(1.5, 1.5), proved=1.0):
    lines = {
        "geco": figures(benchmark, single_ms=9.0),
        "exact": figures(benchmark, batch_ms=30.0),
        "geco observed": figures(benchmark, cost=1.9),
        "exact observed": figures(benchmark, valid=0.5, proved=0.5),
        "treecf": figures(benchmark, cost=1.4, single_ms=16.0, batch_ms=10.0),
        "treecf exact": figures(benchmark, proved=proved, single_ms=20.0, batch_ms=20.0),
    }
    costs = {"geco": [1.5, 1.5], "exact": exact, "treecf": [1.5, 1.6], "treecf exact": [1.5, 1.5]}
    return benchmark.tree_contest.Tried(
        "small",
        real,
        lines,
        {name: pd.Series(some) for name, some in costs.items()},
        {"geco": pd.Series([False, False]), "exact": pd.Series([True, True])},
    )


def test_promises_beside_treecf_depend_on_how_fast_it_is(benchmark):
    found = {gate.what: gate for gate in tried(benchmark, exact=(1.5, 1.6)).gates()}
    assert {what: (gate.found, gate.wanted, gate.kept) for what, gate in found.items()} == {
        "share proved, beside treecf exact": (1.0, 1.0, True),
        "single_ms CPU, geco / treecf": (9 / 16, 0.5, False),
        "batch_ms CPU, geco / treecf": (0.4, 1.0, True),
        "single_ms CPU, exact / treecf exact": (0.25, 0.5, True),
        "batch_ms CPU, exact / treecf exact": (1.5, 0.5, False),
        "geco valid": (1.0, 1.0, True),
        "geco observed valid": (1.0, 1.0, True),
        "exact valid": (1.0, 1.0, True),
        "exact observed valid": (0.5, 1.0, False),
        "mean cost, geco / treecf": (pytest.approx(1.5 / 1.55), 1 + 1e-6, True),
        "rows where exact is costlier than treecf exact": (1.0, 0.0, False),
    }
    # the time of a search that its limit cut says nothing
    cut = [gate.what for gate in tried(benchmark, proved=0.5).gates() if "exact" in gate.what and "CPU" in gate.what]
    assert cut == []
    # fractions of treecf in columns of integers are no reason to promise a cost
    assert not [gate for gate in tried(benchmark, real=False).gates() if "cost" in gate.what]


def test_an_unanswered_row_is_costlier(benchmark):
    found = {gate.what: gate.found for gate in tried(benchmark, exact=(1.5, np.inf)).gates()}
    assert found["rows where exact is costlier than treecf exact"] == 1


def test_the_table_says_where_treecf_is_ahead(benchmark):
    one = tried(benchmark)
    assert [one.ahead(method) for method in benchmark.tree_contest.BESIDE] == ["cost", "", "in one call", "proofs"]
    text = benchmark.tree_contest.table([one])
    assert "small: treecf exact" in text
    assert "treecf is ahead in" in text


def test_wrong_answers_and_proofs_that_treecf_undercuts_are_broken(benchmark):
    wrong = "BROKEN: exact observed: an answer is wrong"
    assert tried(benchmark).broken() == [wrong]
    assert tried(benchmark, exact=(1.5, 1.7)).broken() == [
        wrong,
        "BROKEN: exact proved row 1 wrongly: treecf is nearer",
        "BROKEN: exact proved row 1 wrongly: treecf exact is nearer",
    ]
    assert tried(benchmark, exact=(1.5, 1.7), real=False).broken() == [wrong]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """An MLflow run, and no public data sets."""
    monkeypatch.setenv("MLFLOW_CF_DATA", str(tmp_path / "nowhere"))
    with mlflow.start_run() as active:
        yield active


def test_the_part_trees_runs_anywhere_and_is_logged(benchmark, monkeypatch, shape, run, capsys):
    cases = benchmark.tree_cases
    monkeypatch.setattr(cases, "GENERATED", ((shape, cases.first),))
    monkeypatch.setattr(benchmark.tree_contest, "CALLS", 1)
    chosen = benchmark.bench.options().parse_args(["--parts", "trees", "--rows", "2"])
    assert benchmark.bench.PARTS["trees"](chosen) == []
    text = capsys.readouterr().out
    assert "The cases on Credit and Adult are left out" in text
    assert "kept   geco valid" not in text
    logged = mlflow.get_run(run.info.run_id).data.metrics
    for method in benchmark.tree_contest.BESIDE:
        assert logged[f"{shape.name} {method}/valid"] == 1
    assert logged[f"{shape.name} exact/cost"] == pytest.approx(logged[f"{shape.name} treecf exact/cost"])
    assert logged[f"{shape.name} exact/proved"] == logged[f"{shape.name} treecf exact/proved"] == 1


def test_the_part_levers_runs_anywhere_and_is_logged(benchmark, monkeypatch, shape, run, capsys):
    monkeypatch.setattr(benchmark.tree_cases, "GENERATED", ((shape, benchmark.tree_cases.first),))
    chosen = benchmark.bench.options().parse_args(["--parts", "levers", "--rows", "2"])
    assert benchmark.bench.PARTS["levers"](chosen) == []
    assert "Levers, all sets of up to 2" in capsys.readouterr().out
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged[f"levers {shape.name}/proved"] == logged[f"levers {shape.name}/agree"] == 1


def test_the_part_autolog_runs_anywhere_and_is_logged(benchmark, monkeypatch, run, capsys):
    monkeypatch.setattr(benchmark.autolog, "ROUNDS", 1)
    monkeypatch.setattr("mlflow.models.infer_pip_requirements", lambda *_, fallback=None, **__: fallback or [])
    chosen = benchmark.bench.options().parse_args(["--parts", "autolog", "--rows", "60"])
    assert benchmark.bench.PARTS["autolog"](chosen) == []
    assert "Autolog: seconds of a training call" in capsys.readouterr().out
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert all(logged[f"autolog {flavor}/explained"] > 0 for flavor in ("sklearn", "xgboost", "lightgbm"))
    models = {model.name for model in mlflow.search_logged_models(output_format="list")}
    assert models >= {"model", "model_explained"}


def test_the_part_endpoint_runs_anywhere_and_is_logged(benchmark, run, capsys):
    arguments = ["--parts", "endpoint", "--data-sets", "loans", "--models", "tree", "--rows", "3"]
    assert benchmark.bench.PARTS["endpoint"](benchmark.bench.options().parse_args(arguments)) == []
    assert "Models behind an address" in capsys.readouterr().out
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["endpoint loans / tree/valid"] == logged["endpoint loans / tree/certified"] == 1
    assert 1 <= logged["endpoint loans / tree/calls"] <= logged["endpoint loans / tree/most_calls"] <= 40


@pytest.mark.filterwarnings("ignore")  # shap's, and those of what it imports
def test_the_part_reasons_runs_anywhere_and_is_logged(benchmark, run, capsys):
    pytest.importorskip("shap")
    chosen = benchmark.bench.options().parse_args(["--parts", "reasons", "--data-sets", "loans", "--rows", "2"])
    assert benchmark.bench.PARTS["reasons"](chosen) == []
    assert "Reasons beside shap" in capsys.readouterr().out
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["reasons loans / forest/worst"] <= 1e-6
    assert logged["reasons loans / xgboost/gap"] <= 1e-9


def test_the_part_monitoring_runs_anywhere_and_is_logged(benchmark, monkeypatch, run, capsys):
    monkeypatch.setattr(benchmark.monitoring, "MANY", 500)
    chosen = benchmark.bench.options().parse_args(["--parts", "monitoring", "--rows", "2"])
    assert benchmark.bench.PARTS["monitoring"](chosen) == []
    assert "Monitoring of generated traces" in capsys.readouterr().out
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["monitoring/found"] == 1
    assert logged["monitoring/runs"] == 2


def test_the_part_proofs_runs_anywhere_and_is_logged(benchmark, monkeypatch, shape, run, capsys):
    monkeypatch.setitem(benchmark.envelope.GRIDS, "short", (shape,))
    chosen = benchmark.bench.options().parse_args(["--parts", "proofs"])
    assert benchmark.bench.PARTS["proofs"](chosen) == []
    text = capsys.readouterr().out
    assert "1 of 1 promises about speed and distance were kept." in text
    assert "30 x 3" in text
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged[f"{shape.name} exact/proved"] == logged[f"{shape.name} treecf exact/proved"] == 1


def test_proofs_are_compared_by_their_share(benchmark, shape):
    envelope = benchmark.envelope
    sides = {"exact": envelope.Side(1.0, 0.2), "treecf exact": envelope.Side(0.5, 6.0)}
    ahead = envelope.Reach(shape, [1, 2], sides, [])
    behind = replace(ahead, shape=replace(shape, free=6), sides=dict(zip(sides, reversed(sides.values()), strict=True)))
    assert (ahead.gate.kept, behind.gate.kept) == (True, False)
    assert ahead.broken() == []
    (wrong,) = replace(ahead, wrong=[1]).broken()
    assert wrong.startswith("BROKEN: exact proved row 1 wrongly")
    (_, first, second, every) = (line.split() for line in envelope.table([ahead, behind]).splitlines())
    assert first[-6:] == ["1/2", "100%", "0.20", "50%", "6.00", "exact"]
    assert second[-7:] == ["1/2", "50%", "6.00", "100%", "0.20", "treecf", "exact"]
    assert every == ["all", "75%", "75%"]
    (_, four, six) = (line.split() for line in envelope.limits([ahead, behind]).splitlines())
    assert (four, six) == (["4", "30", "x", "3", "none"], ["6", "none", "30", "x", "3"])


def test_the_whole_grid_has_every_shape_once(benchmark):
    grids = benchmark.envelope.GRIDS
    assert len(set(grids["whole"])) == len(grids["whole"]) == 48
    assert set(grids["short"]) < set(grids["whole"])


@pytest.fixture(scope="module")
def mixed(benchmark):
    """A tree over numbers, integers and levels."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"job": rng.choice(["x", "y", "z"], 120), "age": rng.integers(20, 32, 120), "income": rng.random(120)}
    )
    labels = ((rows["age"] > 26) & (rows["job"] != "x")).astype(int)
    model = benchmark.models.as_published(rows, 0).fit(rows, labels)
    rejected = rows[model.predict(rows) == 0].reset_index(drop=True)
    return benchmark.data_sets.Case("small", rows, labels, rejected, {"immutable": ["job"]}, model, 1.0)


@pytest.fixture
def nice(benchmark, mixed):
    if not benchmark.rival_nice.INSTALLED:
        pytest.skip(benchmark.rival_nice.LEFT_OUT)
    return benchmark.rival_nice.Nice.build(mixed)


def test_nice_answers_in_the_columns_own_types(mixed, nice):
    for at in range(6):
        reply = nice(mixed.rejected.iloc[[at]])
        assert [type(value) for value in reply.row.values()] == [str, int, float]
        assert mixed.model.predict(pd.DataFrame([reply.row])) == [1]


def test_nice_refuses_a_level_it_never_saw(mixed, nice):
    reply = nice(mixed.rejected.head(1).assign(job="new"))
    assert (reply.row, reply.reason) == (None, "job has a level that the background has not")


def test_tables_come_back_from_the_numbers_that_nice_is_given(benchmark, mixed):
    coding = benchmark.rival_nice.Coding.of(mixed.background)
    X = coding.encode(mixed.background)
    pd.testing.assert_frame_equal(coding.decode(X), mixed.background, check_dtype=False)
    assert coding.row(X[3]) == mixed.background.iloc[3].to_dict()


@pytest.mark.parametrize("limits", [{"age": (0, 29)}, {"age": (20, 99), "income": (0.0, 1.0)}, {"job": ["y"]}])
def test_dice_keeps_the_limits_of_a_user(benchmark, mixed, limits):
    dice = benchmark.rival_dice.Dice.build(mixed, "random", 0)
    replies = []
    for at, x0 in enumerate(mixed.rejected.head(5).to_dict("records")):
        reply = benchmark.rival_dice.dice_with_limits(dice, mixed.rejected.iloc[[at]], limits)
        replies.append(reply.row)
        if reply.row is None:
            assert reply.reason
            continue
        assert mixed.model.predict(pd.DataFrame([reply.row])) == [1]
        for name, own in x0.items():
            value, told = reply.row[name], limits.get(name, ())
            inside = value in told if name == "job" else told and told[0] <= value <= told[1]
            assert value == own or inside
    assert any(replies) or "age" not in limits


def test_dice_is_not_asked_where_the_limits_leave_nothing(benchmark, mixed):
    dice = benchmark.rival_dice.Dice.build(mixed, "random", 0)
    row = mixed.rejected.head(1)
    reply = benchmark.rival_dice.dice_with_limits(dice, row, {"job": [row["job"].iloc[0]]})
    assert (reply.row, reply.reason) == (None, "the limits leave nothing to vary")


def test_a_reply_is_measured_without_the_models_own_calls(benchmark, mixed, monkeypatch):
    """The clock moves in the model alone."""
    now, explained = [0.0], mixed.wrapped(0)
    monkeypatch.setattr(benchmark.own_share, "time", SimpleNamespace(process_time=lambda: now[0]))

    def slow(call):
        def ask(rows):
            now[0] += 0.5
            return call(rows)

        return ask

    model = explained.judge.model
    model = replace(model, decide=slow(model.decide), score=slow(model.score), both=None)
    found = benchmark.own_share.measure(
        replace(explained, judge=replace(explained.judge, model=model)), mixed.rejected.head(3)
    )
    assert found.own_ms == 0
    assert found.model_calls >= 1
    assert now[0] >= 3 * 0.5
    coded = explained.judge.coded
    calls = coded.calls._replace(told=slow(coded.calls.told))
    judge = replace(explained.judge, coded=coded._replace(calls=calls))
    before, found = now[0], benchmark.own_share.measure(replace(explained, judge=judge), mixed.rejected.head(3))
    assert (found.own_ms, found.model_calls >= 1, now[0] >= before + 3 * 0.5) == (0, True, True)
