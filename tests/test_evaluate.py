"""Evaluations: what is logged is what slow plain code finds in the table, and nothing is lost however it ends."""

import json
import math
import statistics
import weakref
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient

import mlflow_cf
from mlflow_cf import GeCo, InputError, NearestRow
from mlflow_cf.evaluation.measure import lines, measured
from mlflow_cf.evaluation.measure.aggregates import MEANS, aggregates, flat
from mlflow_cf.evaluation.measure.lines import groups_of
from mlflow_cf.evaluation.measure.result import ranking
from mlflow_cf.evaluation.names import percent
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.metrics import Labelled, extraction_fidelity, membership_auc

NAME = "evaluated-loans"
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def loans():
    """The table with its labels, and the model in memory and in the registry."""
    table = small_loans.table()
    pipeline = small_loans.fitted(table)
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS}
    info = mlflow_cf.log_model(
        pipeline, "loans", table, **options, registered_model_name=NAME, pip_requirements=["scikit-learn"]
    )
    rows = table.assign(label=small_loans.labels(table)).set_index(pd.Index([f"r{i}" for i in range(len(table))]))
    return SimpleNamespace(rows=rows, explained=mlflow_cf.wrap(pipeline, table, **options), info=info)


@pytest.fixture(scope="module")
def evaluation(loans):
    return mlflow_cf.evaluate(f"models:/{NAME}/1", loans.rows, labels="label", groups={"income": [30, 45], "job": None})


def slow(values):
    """Return mean, standard error and number of what is known."""
    known = [value for value in values if not math.isnan(value)]
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return (statistics.fmean(known) if known else None), error, len(known)


def test_metrics_are_what_plain_code_finds_in_the_table(loans, evaluation):
    table, metrics = evaluation.table, evaluation.metrics
    assert list(table["row"]) == list(loans.rows.index)
    for column, metric in MEANS.items():
        if column in table:
            mean, error, queries = slow(table[column].tolist())
            assert metrics.get(f"cf/{metric}") == (None if mean is None else pytest.approx(mean, rel=1e-12)), metric
            assert metrics.get(f"cf/queries/{metric}") == (queries or None)
            assert metrics.get(f"cf/standard_error/{metric}") == (
                None if error is None else pytest.approx(error, abs=1e-15)
            )
    for status in ("found", "already", "not_found"):
        assert metrics[f"cf/status/{status}"] == sum(table["status"] == status)
    answered = table[table["answers"] > 0]
    assert metrics["cf/proved/none"] == sum(answered["proof"] == "none") / len(answered)
    assert metrics["cf/seconds_p50"] == pytest.approx(statistics.median(table["seconds"].dropna()))
    right = (
        loans.explained.model.decide(loans.rows[list(loans.explained.space.names)]) == loans.rows["label"].to_numpy()
    )
    assert metrics["cf/accuracy"] == pytest.approx(right.mean())


def test_groups_are_measured_by_themselves(loans, evaluation):
    table, metrics = evaluation.table, evaluation.metrics
    for job in ("clerk", "cook", "nurse"):
        mine = table[(loans.rows["job"] == job).to_numpy()]
        assert metrics[f"cf/rows/job.{job}"] == len(mine)
        assert metrics[f"cf/mixed/job.{job}"] == pytest.approx(mine["mixed"].mean())
    low = table[(loans.rows["income"] < 30).to_numpy()]
    assert metrics["cf/coverage/income.below 30"] == pytest.approx(low["coverage"].mean())
    assert metrics["cf/rows/income.30 to 45"] == loans.rows["income"].between(30, 45, inclusive="left").sum()


def test_a_tiny_group_is_reported_without_a_standard_error(loans):
    rows = loans.rows.assign(group=["few"] * 3 + ["many"] * (len(loans.rows) - 3))
    found = mlflow_cf.evaluate(loans.explained, rows, groups="group")
    assert found.metrics["cf/rows/group.few"] == 3
    assert "cf/accuracy" not in found.metrics
    assert "cf/standard_error/coverage/group.many" in found.metrics
    assert "cf/standard_error/coverage/group.few" not in found.metrics
    assert any("group.few has 3 rows" in note for note in found.notes)
    assert any("no LoggedModel" in note for note in found.notes)


def test_run_and_logged_model_have_the_metrics_the_data_set_tables_and_figures(loans, evaluation):
    client, run = MlflowClient(), mlflow.get_run(evaluation.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == pytest.approx(dict(evaluation.logged))
    assert evaluation.logged.items() <= evaluation.metrics.items()
    assert [one.model_id for one in run.inputs.model_inputs] == [loans.info.model_id]
    assert [one.dataset.name for one in run.inputs.dataset_inputs] == ["counterfactual"]
    logged = {one.key: one for one in mlflow.get_logged_model(loans.info.model_id).metrics}
    assert logged["cf/coverage"].value == evaluation.metrics["cf/coverage"]
    assert logged["cf/coverage"].dataset_name == "counterfactual"
    kept = {
        item.path.removeprefix("counterfactual/") for item in client.list_artifacts(run.info.run_id, "counterfactual")
    }
    drawn = {"outcomes.png", "distances.png", "changed_features.png", "groups.png"}
    assert kept == {"geco.parquet", "rows.json", "metrics.csv", "metrics.json", "report.html", *drawn}
    shown = mlflow.load_table("counterfactual/rows.json", run_ids=[run.info.run_id])
    assert len(shown) == len(loans.rows)
    figures = mlflow.load_table("counterfactual/metrics.json", run_ids=[run.info.run_id])
    assert flat(figures, by_explainer=False) == pytest.approx(dict(evaluation.metrics), abs=1e-9)  # ten decimals
    found = mlflow.search_logged_models(filter_string="metrics.`cf/coverage` > 0.5", output_format="list")
    assert loans.info.model_id in [one.model_id for one in found]


def test_a_run_has_a_dozen_metrics_and_those_asked_for(loans, evaluation):
    assert {"cf/coverage", "cf/mixed", "cf/accuracy", "cf/gap/coverage", "cf/gap/mixed"} <= set(evaluation.logged)
    assert len(evaluation.logged) <= 15
    asked = {"explainers": ["geco", "nearest_row"], "groups": ["job", "age"]}
    several = mlflow_cf.evaluate(loans.explained, loans.rows, labels="label", **asked)
    assert len(several.logged) <= 15 + 2 * 10
    assert len(several.metrics) > 300
    assert several.logged["cf/mixed"] == several.logged["cf/geco/mixed"] < several.logged["cf/nearest_row/mixed"]
    more = mlflow_cf.evaluate(
        loans.explained, loans.rows.head(30), groups="job", metrics=["cf/coverage/job.*", "cf/gowre"]
    )
    assert {"cf/coverage/job.cook", "cf/coverage/job.nurse"} <= set(more.logged)
    assert "cf/mixed/job.cook" not in more.logged
    assert "no metric is called 'cf/gowre'; did you mean 'cf/gower'?" in more.notes


def test_gaps_are_between_groups_of_one_column(loans, evaluation):
    table, metrics = evaluation.table, evaluation.metrics
    assert set(evaluation.aggregates.query("metric == 'gap/mixed'")["group"]) == {""}
    for name in ("coverage", "mixed"):
        spreads = []
        for column in ("group.income", "group.job"):
            known = table.groupby(column)[name].agg(["mean", "count"]).query("count >= 10")["mean"]
            spreads.append(known.max() - known.min())
        assert metrics[f"cf/gap/{name}"] == pytest.approx(np.nanmax(spreads))
    few = mlflow_cf.evaluate(loans.explained, loans.rows.head(8), groups="job")
    assert not any("gap" in name for name in few.metrics)


def test_a_loaded_pyfunc_and_an_active_run_do_as_well(loans):
    with mlflow.start_run() as run:
        found = mlflow_cf.evaluate(mlflow.pyfunc.load_model(f"models:/{NAME}/1"), loans.rows.head(12), name="few")
    assert found.run_id == run.info.run_id
    assert found.source.model_id == loans.info.model_id
    assert mlflow.get_run(found.run_id).data.metrics["cf/rows"] == 12
    assert len(found.table) == 12


def test_a_run_of_ours_tells_how_it_was_asked_and_what_it_found(loans, evaluation):
    run = mlflow.get_run(evaluation.run_id)
    params = {name.removeprefix("cf.evaluate."): value for name, value in run.data.params.items()}
    assert json.loads(params.pop("options.geco"))["q"] == 100
    assert params == {
        "rows": "80", "explainers": "geco", "groups": "income, job", "count": "1", "seed": "0", "certify": "False",
        "max_evaluations": "1000000", "time_limit_s": "none",
    }  # fmt: skip
    note = run.data.tags["mlflow.note.content"]
    rows = evaluation.metrics["cf/queries/coverage"]
    assert note.startswith(f"**GeCo answers {percent(evaluation.metrics['cf/coverage'])} of the {rows:.0f} rows that ")
    assert "100 % meet all constraints" in note
    assert "among the artifacts, in counterfactual/" in note


def test_params_and_notes_of_a_users_run_stay(loans):
    with mlflow.start_run(description="mine") as run:
        mlflow.log_param("cf.evaluate.rows", "all")
        mlflow_cf.evaluate(loans.explained, loans.rows.head(6), time_limit_s=30)
        mlflow_cf.evaluate(loans.explained, loans.rows.head(7), seed=5)
    data = mlflow.get_run(run.info.run_id).data
    assert data.tags["mlflow.note.content"] == "mine"
    kept = {"rows": "all", "seed": "0", "time_limit_s": "30"}
    assert data.params.items() >= {f"cf.evaluate.{name}": value for name, value in kept.items()}.items()
    with mlflow.start_run() as run:
        mlflow_cf.evaluate(loans.explained, loans.rows.head(6))
    assert "mlflow.note.content" not in mlflow.get_run(run.info.run_id).data.tags


def test_an_evaluation_stands_whatever_its_pictures_do(loans, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr("mlflow.log_figure", broken)
    found = mlflow_cf.evaluate(loans.explained, loans.rows.head(8))
    assert mlflow.get_run(found.run_id).info.status == "FINISHED"
    assert len(found.table) == 8
    assert "pictures of an evaluation could not be logged (RuntimeError: no ink)" in caplog.text


def test_words_for_people(evaluation):
    assert "winner geco" in repr(evaluation)
    page = evaluation._repr_html_()
    assert "coverage" in page
    assert "standard_error" in page
    frame = evaluation.to_frame()
    assert frame.loc["coverage", ("geco", "value")] == evaluation.metrics["cf/coverage"]
    assert frame.loc["coverage", ("geco", "queries")] == evaluation.metrics["cf/queries/coverage"]


def test_the_summary_is_made_of_the_answers(loans, evaluation):
    summary = evaluation.summary(most=3)
    assert summary.rows == evaluation.metrics["cf/status/found"] + evaluation.metrics["cf/status/not_found"]
    assert 0 < summary.covered <= 1
    assert len(summary.items) <= 3
    assert "30 to 45, cook" in summary.groups


class Breaks:
    """An explainer that raises."""

    name = "breaks"
    polish = False

    def search(self, problem, budget, rng):
        raise NotImplementedError


class Refuses(Breaks):
    """An explainer that refuses what is asked."""

    name = "refuses"

    def check(self, facts, count):  # noqa: ARG002
        raise InputError("explainer", "takes no such model", "choose another")


def test_who_answers_no_row_is_named_with_the_reason(loans):
    lofty = mlflow_cf.wrap(
        small_loans.fitted(small_loans.table()),
        small_loans.table(),
        target="good",
        constraints={"rules": ["x_cf.income == x.income + 0.1", "x_cf.age == x.age + 1"]},
    )
    found = mlflow_cf.evaluate(lofty, loans.rows.head(20), explainers=["nearest_row", "geco"])
    (note,) = [note for note in found.notes if note.startswith("nearest_row answers no row; ")]
    reason = found.table.query("explainer == 'nearest_row' and status != 'already'")["reason"].mode()[0]
    assert reason
    assert note.endswith(f": {reason}")
    assert note in repr(found)


def test_a_bake_off_names_the_winner_and_whoever_fails(loans):
    several = ["nearest_row", "geco", GeCo(q=20), Refuses()]
    found = mlflow_cf.evaluate(loans.explained, loans.rows, explainers=several)
    assert found.winner in {"geco", "geco_2"}
    assert found.ranking[-1] == "nearest_row"
    assert found.failures == {"refuses": "InputError: explainer: takes no such model; choose another"}
    assert "refuses failed" in repr(found)
    assert "takes no such model" in found._repr_html_()
    assert {f"cf/{name}/coverage" for name in ("nearest_row", "geco", "geco_2")} <= set(found.metrics)
    assert set(found.table["explainer"]) == {"nearest_row", "geco", "geco_2"}
    assert mlflow.get_run(found.run_id).data.metrics["cf/geco/mixed"] < found.metrics["cf/nearest_row/mixed"]


def test_the_winner_becomes_the_explainer_of_a_new_version(loans):
    several = ["random_search", GeCo(q=20)]
    found = mlflow_cf.evaluate(f"models:/{NAME}/1", loans.rows.head(30), explainers=several, register_winner=NAME)
    assert found.version == 2
    described = MlflowClient().get_model_version(NAME, "2").description
    assert f"Explainer: {found.winner.replace('_', chr(92) + '_')}. Constraints: immutable age" in described
    first, second = mlflow_cf.load_model(f"models:/{NAME}/1"), mlflow_cf.load_model(f"models:/{NAME}/2")
    winner = GeCo(q=20) if found.winner == "geco" else mlflow_cf.RandomSearch()
    assert second.explainer == winner
    assert first.describe() | {"explainer": None} == second.describe() | {"explainer": None}
    pd.testing.assert_frame_equal(first.background, second.background)
    meta = mlflow.models.get_model_info(f"models:/{NAME}/2")
    assert meta.model_id != loans.info.model_id
    assert meta.run_id == found.run_id
    assert mlflow.get_logged_model(meta.model_id).tags["cf.explainer"] == found.winner
    with pytest.raises(InputError, match="register_winner: the files of this model are not known"):
        mlflow_cf.evaluate(loans.explained, loans.rows, register_winner=NAME)


def test_errors_inside_of_searches_are_rows_that_failed(loans):
    found = mlflow_cf.evaluate(loans.explained, loans.rows, explainers=[Breaks(), NearestRow()])
    assert found.winner == "nearest_row"
    assert found.metrics["cf/breaks/coverage"] == 0
    assert found.metrics["cf/breaks/status/invalid"] == 80 - found.metrics["cf/nearest_row/status/already"]


def test_where_nobody_can_do_it_the_run_has_failed(loans):
    with pytest.raises(InputError, match=r"explainers: none could do it .*takes no such model"):
        mlflow_cf.evaluate(loans.explained, loans.rows, explainers=[Refuses()])
    assert mlflow.last_active_run().info.status == "FAILED"


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.sampled_from([None, 0.1, 0.2, 0.7]), min_size=5, max_size=5)),
        min_size=2,
        max_size=4,
    )
)
@settings(max_examples=20)
def test_the_rule_of_bake_offs(tmp_path_factory, drawn):
    folder, paths = tmp_path_factory.mktemp("rank"), {}
    for place, (lawful, distances) in enumerate(drawn):
        mixed = np.array([np.nan if one is None else one for one in distances])
        answered = ~np.isnan(mixed)
        table = pd.DataFrame({"validity": np.where(answered, 1.0, np.nan), "coverage": answered.astype(float)})
        table["constraint_satisfaction"] = np.where(answered, float(lawful), np.nan)
        paths[f"e{place}"] = folder / f"{place}.parquet"
        table.assign(mixed=mixed, seconds=0.1).to_parquet(paths[f"e{place}"])
    answering = [distances for _, distances in drawn if any(one is not None for one in distances)]
    shared = [row for row in range(5) if answering and all(one[row] is not None for one in answering)]

    def key(place):
        lawful, distances = drawn[place]
        known = [one for one in distances if one is not None]
        near = statistics.fmean(distances[row] for row in shared) if known and shared else math.inf
        return (bool(known) and not lawful, -len(known), round(near, 9))

    order = [int(name.removeprefix("e")) for name in ranking(paths)]
    assert [key(place) for place in order] == sorted(map(key, range(len(drawn))))


def test_nothing_to_explain_is_said(loans):
    fine = loans.rows[loans.explained.outcome.codes == 1].head(5)
    found = mlflow_cf.evaluate(loans.explained, fine)
    assert "cf/coverage" not in found.metrics
    assert found.metrics["cf/status/already"] == 5
    assert any("nothing was to be explained" in note for note in found.notes)


def stopping(monkeypatch, after, error):
    explain, calls = ExplainedModel.explain, []

    def stop(self, X, **options):
        calls.append(len(X))
        if len(calls) > after:
            raise error
        return explain(self, X, **options)

    monkeypatch.setattr(ExplainedModel, "explain", stop)
    monkeypatch.setattr(measured.Measuring, "part", 10)
    monkeypatch.setattr(
        measured.Measuring.__init__, "__defaults__", (*measured.Measuring.__init__.__defaults__[:-1], 10)
    )


def test_an_interruption_logs_what_there_is_and_fails_the_run(loans, monkeypatch):
    stopping(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt, match=r"of 80 rows, 20 by geco were measured; they are logged to run"):
        mlflow_cf.evaluate(loans.explained, loans.rows)
    run = mlflow.last_active_run()
    assert run.info.status == "FAILED"
    assert run.data.metrics["cf/rows"] == 20


def test_an_error_halfway_logs_what_there_is(loans, monkeypatch):
    stopping(monkeypatch, 1, RuntimeError("the store is gone"))
    with pytest.raises(RuntimeError, match="the store is gone"):
        mlflow_cf.evaluate(loans.explained, loans.rows)
    assert mlflow.last_active_run().data.metrics["cf/rows"] == 10


def test_parts_are_let_go_of(loans, tmp_path, monkeypatch):
    """Of a long table only one part is in memory at a time."""
    alive, most = [], []
    measure = measured._measured

    def watched(*arguments):
        part = measure(*arguments)
        alive[:] = [one for one in alive if one() is not None]
        most.append(len(alive))
        alive.append(weakref.ref(part))
        return part

    monkeypatch.setattr(measured, "_measured", watched)
    beside = lines.Beside.of(loans.rows, None, {}, loans.explained)
    rows = loans.rows.reset_index(drop=True)
    parts = measured.measure_rows(loans.explained, rows, measured.Measuring(part=10))
    lines.write(tmp_path / "lines.parquet", parts, beside, loans.explained)
    assert max(most) <= 1
    whole = aggregates(tmp_path / "lines.parquet")
    assert whole.loc[whole["metric"] == "rows", "value"].tolist() == [80.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": small_loans.table().head(0)}, "rows: there are none"),
        ({"rows": small_loans.table().drop(columns="age")}, "rows.age: column is missing"),
        ({"labels": "lable"}, "labels: 'lable' is no column of rows; did you mean 'label'"),
        ({"labels": [1, 2]}, r"labels: \(2,\) labels for 80 rows"),
        ({"groups": "jbo"}, "groups.jbo: not a column of rows; did you mean 'job'"),
        ({"groups": {"income": None}}, "groups.income: .* different values; give the edges"),
        ({"groups": {"job": [1]}}, "groups.job: bins need numbers"),
        ({"metrics": "cf/gower"}, "metrics: 'cf/gower' is not a list of names"),
        ({"explainers": []}, "explainers: "),
        ({"explainers": "geco"}, "explainers: 'geco' is not a list"),
        ({"explainers": ["gecko"]}, r"explainers\[0\]: no explainer is called 'gecko'; did you mean 'geco'"),
        ({"model": 3}, "model: a int is no explained model"),
        ({"model": f"models:/{NAME}/1", "register_winner": "a/b"}, "register_winner: Invalid model name 'a/b'"),
        ({"model": f"models:/{NAME}/1", "register_winner": 5}, "register_winner: must be a text, got 5"),
    ],
)
def test_what_does_not_fit_opens_no_run(loans, change, message):
    before = len(MlflowClient().search_runs(["0"]))
    with pytest.raises(InputError, match=message):
        mlflow_cf.evaluate(**{"model": loans.explained, "rows": loans.rows, **change})
    assert len(MlflowClient().search_runs(["0"])) == before


def test_a_regression_is_compared_by_its_errors():
    frame = pd.DataFrame({"x": np.arange(40) % 10, "y": np.arange(40) % 7})
    made = mlflow_cf.wrap(lambda rows: rows["x"] + 0.5, frame, target={"low": 7}, output="value")
    found = mlflow_cf.evaluate(made, frame, labels=frame["x"])
    assert found.metrics["cf/mean_absolute_error"] == 0.5
    assert found.metrics["cf/validity"] == 1


def test_bins_take_their_lower_edge():
    rows = pd.DataFrame({"age": [29.0, 30.0, 49.0, 50.0, np.nan]})
    expected = ["below 30", "30 to 50", "30 to 50", "50 or more", "missing"]
    assert groups_of(rows, {"age": [50, 30]})["age"].tolist() == expected


def distances(explanations):
    return np.array([one.counterfactuals[0].distance if one.counterfactuals else np.nan for one in explanations])


def test_risks_are_those_of_the_metrics(loans):
    explained = loans.explained
    rows = pd.concat([loans.rows, loans.rows[:40]]).reset_index(drop=True)
    found = mlflow_cf.evaluate(explained, rows, risk=True)
    members = explained.background.sample(min(1_000, len(explained.background)), random_state=0)
    inside, outside = (distances(explained.explain(some)) for some in (members, rows))
    assert found.metrics["cf/risk/membership_auc"] == pytest.approx(membership_auc(inside, outside))
    space, decide = explained.space, explained.model.decide
    asked = rows.iloc[:100][list(space.names)]
    answers = explained.explain(asked).to_frame()[list(space.names)]
    held_out = Labelled(space.encode(explained.background), decide(explained.background))
    for figure, table in {"baseline": asked, "fidelity": pd.concat([asked, answers])}.items():
        copied = extraction_fidelity(Labelled(space.encode(table), decide(table)), held_out)
        assert found.metrics[f"cf/risk/extraction_{figure}_100"] == pytest.approx(copied)
    assert not any(name.endswith("_1000") for name in found.metrics)
    assert not any("risk" in name for name in mlflow_cf.evaluate(explained, rows.iloc[:5]).metrics)


def test_without_rows_of_the_background_nobody_can_be_told_from_them(loans):
    table = pd.concat([loans.rows[list(loans.explained.space.names)]] * 2)
    model = small_loans.fitted(small_loans.table())
    explained = mlflow_cf.wrap(model, table, target="good", privacy={"sample": "summary"})
    metrics = mlflow_cf.evaluate(explained, table, risk=True).metrics
    assert "cf/risk/membership_auc" not in metrics
    assert "cf/risk/extraction_fidelity_100" in metrics


def test_the_winner_keeps_what_its_answers_were_held_to(loans):
    rows = loans.rows.head(12)
    table = small_loans.table()
    rich = {"model": small_loans.fitted(table[table["income"] > 30].reset_index(drop=True)), "name": "rich"}
    mlflow_cf.log_model(
        small_loans.fitted(table), "held", table, target="good", robust_to=[rich], plausible="isolation_forest",
        registered_model_name="held-loans", pip_requirements=["scikit-learn"],
    )  # fmt: skip
    found = mlflow_cf.evaluate(
        "models:/held-loans/1", rows, explainers=["random_search", "geco"], register_winner="held-loans"
    )
    before, after = (mlflow_cf.load_model(f"models:/held-loans/{number}") for number in (1, found.version))
    assert set(after.describe()["requirements"]) == {"robust_to.rich", "plausible"}
    assert after.explain(rows).to_dict() == before.explain(rows, explainer=found.winner).to_dict()
