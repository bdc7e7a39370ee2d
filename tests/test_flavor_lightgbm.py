"""LightGBM: opened to labels, scores and values that are the library's own to the bit; what it cannot do is refused."""

import copy
from concurrent.futures import ThreadPoolExecutor

import mlflow
import numpy as np
import pandas as pd
import pytest
from boosting_rows import (
    CLASS,
    GOOD,
    MIXED,
    NUMBERS,
    VALUE,
    WORD,
    as_json_brings_them,
    check_counterfactuals,
    same_answers,
    tables_only,
    zip_found,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native

lgb = pytest.importorskip("lightgbm")
flavor = pytest.importorskip("mlflow_cf_flavors.lightgbm.flavor")

QUIET = {"verbose": -1, "num_leaves": 7}
SMALL = {**QUIET, "n_estimators": 6, "n_jobs": 1, "random_state": 0}
BLANKS = NUMBERS.rename(columns={"age": "age in years", "income": " income <€> (net)"})


def squares(truth, answers):
    return answers - truth, np.ones(len(truth))


CLASSIFIERS = {
    "binary": (lgb.LGBMClassifier(**SMALL), NUMBERS, GOOD),
    "boolean labels": (lgb.LGBMClassifier(**SMALL), NUMBERS, GOOD == 1),
    "words": (lgb.LGBMClassifier(**SMALL), NUMBERS, WORD),
    "words, two": (lgb.LGBMClassifier(**SMALL), NUMBERS, np.where(GOOD, "good", "bad")),
    "three classes": (lgb.LGBMClassifier(**SMALL), NUMBERS, CLASS * 10),
    "one versus all": (lgb.LGBMClassifier(**SMALL, objective="multiclassova"), NUMBERS, CLASS),
    "categories": (lgb.LGBMClassifier(**SMALL), MIXED, GOOD),
    "categories, three classes": (lgb.LGBMClassifier(**SMALL), MIXED, WORD),
    "names with blanks": (lgb.LGBMClassifier(**SMALL), BLANKS, GOOD),
    "random forest": (
        lgb.LGBMClassifier(**SMALL, boosting_type="rf", subsample=0.5, subsample_freq=1),
        NUMBERS,
        GOOD,
    ),
    "dart": (lgb.LGBMClassifier(**SMALL, boosting_type="dart"), NUMBERS, GOOD),
    "linear trees": (lgb.LGBMClassifier(**SMALL, linear_tree=True), NUMBERS, GOOD),
    "cross entropy": (lgb.LGBMClassifier(**SMALL, objective="cross_entropy"), NUMBERS, GOOD),
    "squares": (lgb.LGBMClassifier(**SMALL, objective="regression"), NUMBERS, GOOD),
    "answers cut short": (
        lgb.LGBMClassifier(**SMALL, pred_early_stop=True, pred_early_stop_freq=1, pred_early_stop_margin=0.5),
        NUMBERS,
        GOOD,
    ),
    "fitted on an array": (lgb.LGBMClassifier(**SMALL), NUMBERS.to_numpy(dtype=float), GOOD),
}
REGRESSORS = {
    "squares": (lgb.LGBMRegressor(**SMALL), NUMBERS, VALUE),
    "categories": (lgb.LGBMRegressor(**SMALL), MIXED, VALUE),
    "quantile": (lgb.LGBMRegressor(**SMALL, objective="quantile", alpha=0.7), NUMBERS, VALUE),
    "counts": (lgb.LGBMRegressor(**SMALL, objective="poisson"), NUMBERS, np.maximum(VALUE, 0).round()),
}
BOOSTERS = {
    "binary": (NUMBERS, GOOD, {}),
    "binary, categories": (MIXED, GOOD, {}),
    "binary, names with blanks": (BLANKS, GOOD, {}),
    "multiclass": (NUMBERS, CLASS, {"num_class": 3}),
    "multiclass, categories": (MIXED, CLASS, {"num_class": 3}),
    "multiclassova": (NUMBERS, CLASS, {"num_class": 3}),
    "cross_entropy": (NUMBERS, GOOD * 0.8 + 0.1, {}),
    "cross_entropy_lambda": (NUMBERS, GOOD * 0.8 + 0.1, {}),
    "regression": (NUMBERS, VALUE, {}),
    "regression, root": (NUMBERS, np.maximum(VALUE, 0), {"reg_sqrt": True}),
    "regression_l1, categories": (MIXED, VALUE, {}),
    "huber": (NUMBERS, VALUE, {}),
    "tweedie": (NUMBERS, np.maximum(VALUE, 0), {}),
}


def train(table, truth, rounds=6, **params):
    return lgb.train({**QUIET, "num_threads": 1, "seed": 0, **params}, lgb.Dataset(table, truth), rounds)


def booster(name):
    table, truth, params = BOOSTERS[name]
    return train(table, truth, objective=name.split(",")[0], **params), table


def probabilities(name):
    return name not in ("one versus all", "squares", "multiclassova")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_decides_and_scores_as_the_library_before_and_after_saving(name, tmp_path):
    model, table, truth = CLASSIFIERS[name]
    model = copy.deepcopy(model).fit(table, truth)
    table = NUMBERS if name == "fitted on an array" else table
    opened = open_native(model, rows=table)
    assert opened.flavor == "lightgbm"
    assert opened.classes == tuple(np.unique(truth).tolist())
    assert {type(label) for label in opened.classes} <= {int, str, bool}
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    scores = opened.score(table)
    np.testing.assert_array_equal(scores, model.predict_proba(table))
    np.testing.assert_array_equal(np.array(opened.classes)[scores.argmax(axis=1)], model.predict(table))
    assert opened.score_kind == ("probability" if probabilities(name) else "margin")
    assert opened.columns == (() if name == "fitted on an array" else tuple(table.columns))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    conf = mlflow.models.Model.load(str(tmp_path / "m")).flavors["lightgbm"]
    assert conf["serialization_format"] == "skops"
    assert not list((tmp_path / "m").glob("*.pkl"))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_answers_the_librarys_values_before_and_after_saving(name, tmp_path):
    model, table, truth = REGRESSORS[name]
    model = copy.deepcopy(model).fit(table, truth)
    opened = open_native(model, rows=table)
    assert opened.regression
    assert opened.score is None
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", BOOSTERS)
def test_a_booster_is_judged_by_its_scores_before_and_after_saving(name, tmp_path):
    model, table = booster(name)
    answers = model.predict(table)
    opened = open_native(model, rows=table)
    assert opened.columns == tuple(table.columns)
    decided, objective = opened.decide(table), name.split(",")[0]
    if objective in ("binary", "cross_entropy"):
        np.testing.assert_array_equal(decided, answers > 0.5)
        np.testing.assert_array_equal(opened.score(table), np.column_stack((1 - answers, answers)))
    elif "multi" in objective:
        np.testing.assert_array_equal(decided, answers.argmax(axis=1))
        np.testing.assert_array_equal(opened.score(table), answers)
    else:
        assert opened.regression
        np.testing.assert_array_equal(decided, answers)
    assert opened.score_kind == ("none" if opened.regression else "probability" if probabilities(name) else "margin")
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    assert (tmp_path / "m" / "model.lgb").is_file()
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")  # its successor is new in LightGBM 4.7
@pytest.mark.parametrize("kind", ["estimator", "booster"])
def test_early_stopping_counts(kind, tmp_path):
    noise = lgb.Dataset(NUMBERS[200:], GOOD[200:])
    stop = [lgb.early_stopping(2, verbose=False)]
    params = {**QUIET, "objective": "binary", "learning_rate": 1.5, "num_threads": 1}
    model = lgb.train(params, lgb.Dataset(NUMBERS[:200], GOOD[:200]), 80, valid_sets=[noise], callbacks=stop)
    if kind == "estimator":
        model = lgb.LGBMClassifier(**{**SMALL, "learning_rate": 1.5, "n_estimators": 80})
        model.fit(NUMBERS[:200], GOOD[:200], eval_set=[(NUMBERS[200:], GOOD[200:])], callbacks=stop)
    opened = open_native(model, rows=NUMBERS)
    answers = model.predict(NUMBERS) if kind == "booster" else model.predict_proba(NUMBERS)[:, 1]
    assert (model.best_iteration if kind == "booster" else model.best_iteration_) < 80
    np.testing.assert_array_equal(opened.score(NUMBERS)[:, 1], answers)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["lightgbm"])
    same_answers(opened, open_folder(tmp_path / "m", rows=NUMBERS), NUMBERS)


@pytest.mark.parametrize("kind", ["estimator", "booster"])
def test_levels_it_has_not_seen_count_as_missing(kind):
    model = train(MIXED, GOOD, objective="binary")
    if kind == "estimator":
        model = lgb.LGBMClassifier(**SMALL).fit(MIXED, GOOD)
    opened = open_native(model, rows=MIXED)
    region = MIXED["region"].astype(object).replace("south", "east")
    unseen = MIXED.assign(region=pd.Categorical(region, categories=["east", "west", "north"]))
    missing = MIXED.assign(region=MIXED["region"].where(MIXED["region"] != "south"))
    np.testing.assert_array_equal(opened.score(unseen), opened.score(missing))
    np.testing.assert_array_equal(opened.decide(unseen), opened.decide(missing))
    assert not np.array_equal(opened.score(unseen), opened.score(MIXED))


def test_levels_of_another_type_are_refused_instead_of_all_missing():
    model = lgb.LGBMClassifier(**SMALL).fit(MIXED, GOOD)
    table = MIXED.assign(grade=MIXED["grade"].astype(str).astype("category"))
    with pytest.raises(InputError, match=r"data\.grade: has none of the levels .*; use levels such as 1"):
        open_native(model, rows=table)


def test_columns_are_found_by_name_where_lightgbm_goes_by_position():
    model = lgb.LGBMClassifier(**SMALL).fit(BLANKS, GOOD)
    table = BLANKS[BLANKS.columns[::-1]].assign(more="x")
    opened = open_native(model, rows=table)
    assert opened.columns == tuple(BLANKS.columns)
    np.testing.assert_array_equal(opened.decide(table), model.predict(BLANKS))
    np.testing.assert_array_equal(opened.score(table), model.predict_proba(BLANKS))


def test_a_table_that_has_the_underscored_names_itself():
    table = BLANKS.rename(columns={"age in years": "age_in_years"})
    model = lgb.LGBMClassifier(**SMALL).fit(table, GOOD)
    assert open_native(model, rows=table).columns == tuple(table.columns)
    both = table.assign(**{"age in years": 0})
    assert open_native(model, rows=both).columns[0] == "age_in_years"
    assert open_native(model).columns[1] == "_income_<€>_(net)"


def test_nullable_dtypes():
    table = NUMBERS.astype({"age": "Int64", "income": "Float64", "owner": "boolean"})
    table.loc[3, ["age", "owner"]] = None
    model = lgb.LGBMClassifier(**SMALL).fit(table, GOOD)
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_array_equal(opened.score(table), model.predict_proba(table))


@pytest.mark.parametrize("name", ["binary, categories", "multiclass", "regression_l1, categories"])
def test_the_array_the_search_uses_gives_the_bits_of_the_table(name, monkeypatch):
    model, table = booster(name)
    opened = open_native(model, rows=table)
    ask = opened.score or opened.decide
    fast, single = ask(table), ask(table.iloc[[5]])
    tables_only(monkeypatch)
    np.testing.assert_array_equal(ask(table), fast)
    np.testing.assert_array_equal(single, fast[[5]])


def test_the_users_model_is_never_touched(tmp_path):
    model = lgb.LGBMClassifier(**{**SMALL, "n_jobs": 2}).fit(NUMBERS, GOOD)
    before = model.booster_.model_to_string(), dict(model.booster_.params), model.get_params()
    opened = open_native(model, rows=NUMBERS)
    opened.score(NUMBERS)
    opened.decide(NUMBERS)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["lightgbm"])
    assert (model.booster_.model_to_string(), dict(model.booster_.params), model.get_params()) == before


@pytest.mark.parametrize("name", ["binary, categories", "multiclass"])
def test_threads_get_the_same_answers(name):
    model, table = booster(name)
    opened = open_native(model, rows=table)
    scores, labels = opened.score(table), opened.decide(table)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: opened.score(table), range(24)):
            np.testing.assert_array_equal(got, scores)
        for got in pool.map(lambda _: opened.decide(table), range(24)):
            np.testing.assert_array_equal(got, labels)


REFUSED = {
    "objective lambdarank ranks rows": lambda: lgb.train(
        {**QUIET, "objective": "lambdarank"}, lgb.Dataset(NUMBERS, GOOD, group=[100] * 25), 3
    ),
    "ranks rows": lambda: lgb.LGBMRanker(**SMALL).fit(NUMBERS, GOOD, group=[100] * 25),
    "objective of your own": lambda: lgb.LGBMClassifier(**SMALL, objective=squares).fit(NUMBERS, GOOD),
    "answers have no known meaning": lambda: train(NUMBERS, GOOD, objective=lambda p, d: squares(d.get_label(), p)),
    "LGBMClassifier is not fitted": lgb.LGBMClassifier,
    "a single label": lambda: lgb.LGBMClassifier(**SMALL).fit(NUMBERS, GOOD * 0),
}


@pytest.mark.parametrize("fact", REFUSED)
def test_what_gives_no_label_or_value_per_row_is_refused(fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(REFUSED[fact](), rows=NUMBERS)
    assert caught.value.path == "model"
    assert caught.value.fix


def test_an_objective_of_ones_own_is_fine_where_the_answers_are_values(tmp_path):
    model = lgb.LGBMRegressor(**SMALL, objective=squares).fit(NUMBERS, VALUE)
    np.testing.assert_array_equal(open_native(model, rows=NUMBERS).decide(NUMBERS), model.predict(NUMBERS))
    with pytest.raises(InputError, match="log_model"):
        flavor.save(model, tmp_path / "m", signature=None, pip_requirements=[])
    assert not (tmp_path / "m").exists()
    raw = train(NUMBERS, VALUE, objective=lambda p, d: squares(d.get_label(), p))
    opened = open_native(raw, output="value", rows=NUMBERS)
    np.testing.assert_array_equal(opened.decide(NUMBERS), raw.predict(NUMBERS))


@pytest.mark.parametrize(("output", "kept"), [("label", False), ("score", True), (None, True)])
def test_output_of_a_classifier(output, kept):
    model = lgb.LGBMClassifier(**SMALL).fit(NUMBERS, GOOD)
    opened = open_native(model, output=output, rows=NUMBERS)
    assert (opened.score is not None) == kept
    assert (opened.score_kind == "probability") == kept
    with pytest.raises(InputError, match="output: 'value' does not fit LGBMClassifier; leave it out or use 'label'"):
        open_native(model, output="value")


def test_rows_the_model_cannot_take_are_an_error_when_opening():
    model = lgb.LGBMClassifier(**SMALL).fit(MIXED, GOOD)
    with pytest.raises(InputError, match=r"data: lacks the columns \['region', 'grade'\]"):
        open_native(model, rows=NUMBERS)
    with pytest.raises(InputError, match="category dtype") as caught:
        open_native(model, rows=MIXED.astype({"region": object}))
    assert "['region']" in caught.value.fix
    on_array = lgb.LGBMClassifier(**SMALL).fit(NUMBERS.to_numpy(dtype=float), GOOD)
    with pytest.raises(InputError, match="cannot answer these rows"):
        open_native(on_array, rows=NUMBERS[["age", "owner"]])


def test_a_pipeline_around_it_stays_scikit_learns():
    model = make_pipeline(StandardScaler(), lgb.LGBMClassifier(**SMALL)).fit(NUMBERS.to_numpy(dtype=float), GOOD)
    assert flavor_of(model).MLFLOW_FLAVOR == "sklearn"
    assert flavor_of(model[-1]).MLFLOW_FLAVOR == "lightgbm"


def test_a_pyfunc_is_opened_through_the_model_inside(tmp_path):
    model = lgb.LGBMClassifier(**SMALL).fit(NUMBERS, WORD)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["lightgbm"])
    opened = open_native(mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True), rows=NUMBERS)
    assert opened.flavor == "lightgbm"
    same_answers(opened, open_native(model, rows=NUMBERS), NUMBERS)


class TestCounterfactuals:
    """End to end; every counterfactual is decided again by the library alone."""

    queries = MIXED[GOOD == 0].head(6)

    def test_binary(self):
        model = lgb.LGBMClassifier(**SMALL).fit(MIXED, np.where(GOOD, "good", "bad"))
        explained = mlflow_cf.wrap(model, MIXED, target="good", constraints={"immutable": ["age"]})
        rows = self.queries[model.predict(self.queries) == "bad"]
        answers = check_counterfactuals(explained, rows, lambda table: model.predict(table) == "good")
        assert all(one.row["age"] == row["age"] for one, row in zip_found(answers, rows))

    @pytest.mark.parametrize("name", ["binary, categories", "binary, names with blanks"])
    def test_booster(self, name):
        model, table = booster(name)
        explained = mlflow_cf.wrap(model, table)
        rows = table[model.predict(table) <= 0.5].head(6)
        check_counterfactuals(explained, rows, lambda table: model.predict(table) > 0.5)

    @pytest.mark.parametrize("target", ["top", mlflow_cf.Target.other(), mlflow_cf.Target(label="top")], ids=repr)
    def test_several_classes(self, target):
        model = lgb.LGBMClassifier(**SMALL).fit(MIXED, WORD)
        explained = mlflow_cf.wrap(model, MIXED, target=target)
        rows = MIXED[model.predict(MIXED) == "low"].head(6)
        other = target == mlflow_cf.Target.other()
        check_counterfactuals(
            explained, rows, lambda t: model.predict(t) != "low" if other else model.predict(t) == "top"
        )

    def test_regression(self):
        model = lgb.LGBMRegressor(**SMALL).fit(MIXED, VALUE)
        answers = model.predict(MIXED)
        low, high = np.quantile(answers, [0.7, 0.8])
        explained = mlflow_cf.wrap(model, MIXED, target=mlflow_cf.Target(low=low, high=high))
        rows = MIXED[answers < low].head(6)
        check_counterfactuals(explained, rows, lambda t: (model.predict(t) >= low) & (model.predict(t) <= high))

    def test_saved_and_loaded(self, tmp_path):
        model = lgb.LGBMClassifier(**SMALL).fit(MIXED, WORD)
        mlflow_cf.save_model(model, tmp_path / "m", MIXED, target="top")
        rows = MIXED[model.predict(MIXED) == "low"].head(4)
        before = mlflow_cf.wrap(model, MIXED, target="top").predict(rows)
        after = mlflow_cf.load_model(tmp_path / "m").predict(rows)
        pd.testing.assert_frame_equal(before, after)

    def test_served_rows_have_no_categories(self, tmp_path):
        model = lgb.LGBMClassifier(**SMALL).fit(MIXED, GOOD)
        mlflow_cf.save_model(model, tmp_path / "m", MIXED, target=1)
        served = mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True)
        rows = MIXED.tail(200).astype({"debt": "float64"}).reset_index(drop=True)
        reply = served.predict(as_json_brings_them(rows), {"counterfactual": {"explain": "none"}})
        assert reply["prediction"].tolist() == model.predict(rows).tolist()
