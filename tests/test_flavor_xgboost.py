"""XGBoost: opened to labels, scores and values that are the library's own to the bit; what it cannot do is refused."""

import copy
import re
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
    as_json_brings_them,
    check_counterfactuals,
    same_answers,
    tables_only,
    zip_found,
)
from scipy.special import softmax
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native

xgb = pytest.importorskip("xgboost")
flavor = pytest.importorskip("mlflow_cf_flavors.xgboost.flavor")

SMALL = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1, "random_state": 0}
EARLY = {**SMALL, "n_estimators": 60, "learning_rate": 1.5, "early_stopping_rounds": 2}
NATIVE = {"enable_categorical": True, "max_cat_to_onehot": 1}
FILLED = NUMBERS.fillna(0)


def hinge_like(truth, margin):
    return np.where(truth * 2 - 1 > margin, -1.0, 1.0), np.ones(len(truth))


CLASSIFIERS = {
    "binary": (xgb.XGBClassifier(**SMALL), NUMBERS, GOOD),
    "boolean labels": (xgb.XGBClassifier(**SMALL), NUMBERS, GOOD == 1),
    "three classes": (xgb.XGBClassifier(**SMALL), NUMBERS, CLASS),
    "softmax": (xgb.XGBClassifier(**SMALL, objective="multi:softmax"), NUMBERS, CLASS),
    "categories": (xgb.XGBClassifier(**SMALL, **NATIVE), MIXED, GOOD),
    "categories, three classes": (xgb.XGBClassifier(**SMALL, **NATIVE), MIXED, CLASS),
    "random forest": (xgb.XGBRFClassifier(**SMALL), NUMBERS, GOOD),
    "random forest, three classes": (xgb.XGBRFClassifier(**SMALL), NUMBERS, CLASS),
    "dart": (xgb.XGBClassifier(**SMALL, booster="dart", rate_drop=0.5), NUMBERS, GOOD),
    "linear": (xgb.XGBClassifier(n_estimators=6, n_jobs=1, booster="gblinear"), FILLED, GOOD),
    "hinge": (xgb.XGBClassifier(**SMALL, objective="binary:hinge"), NUMBERS, GOOD),
    "margins": (xgb.XGBClassifier(**SMALL, objective="binary:logitraw"), NUMBERS, GOOD),
    "objective of one's own": (xgb.XGBClassifier(**SMALL, objective=hinge_like), NUMBERS, GOOD),
    "fitted on an array": (xgb.XGBClassifier(**SMALL), NUMBERS.to_numpy(dtype=float), GOOD),
}
REGRESSORS = {
    "squares": (xgb.XGBRegressor(**SMALL), NUMBERS, VALUE),
    "categories": (xgb.XGBRegressor(**SMALL, **NATIVE), MIXED, VALUE),
    "counts": (xgb.XGBRegressor(**SMALL, objective="count:poisson"), NUMBERS, np.maximum(VALUE, 0).round()),
    "quantile": (xgb.XGBRegressor(**SMALL, objective="reg:quantileerror", quantile_alpha=0.7), NUMBERS, VALUE),
    "random forest": (xgb.XGBRFRegressor(**SMALL), NUMBERS, VALUE),
    "dart": (xgb.XGBRegressor(**SMALL, booster="dart", rate_drop=0.5), NUMBERS, VALUE),
    "linear": (xgb.XGBRegressor(n_estimators=6, n_jobs=1, booster="gblinear"), FILLED, VALUE),
}
BOOSTERS = {
    "binary:logistic": (NUMBERS, GOOD, {}),
    "binary:logistic, categories": (MIXED, GOOD, {"max_cat_to_onehot": 1}),
    "binary:logistic, dart": (NUMBERS, GOOD, {"booster": "dart", "rate_drop": 0.5}),
    "binary:logistic, linear": (FILLED, GOOD, {"booster": "gblinear"}),
    "binary:logitraw": (NUMBERS, GOOD, {}),
    "binary:hinge": (NUMBERS, GOOD, {}),
    "multi:softprob": (NUMBERS, CLASS, {"num_class": 3}),
    "multi:softprob, two classes": (NUMBERS, GOOD, {"num_class": 2}),
    "multi:softprob, categories": (MIXED, CLASS, {"num_class": 3}),
    "multi:softmax": (NUMBERS, CLASS, {"num_class": 3}),
    "reg:squarederror": (NUMBERS, VALUE, {}),
    "reg:squarederror, categories": (MIXED, VALUE, {}),
    "reg:squarederror, dart": (NUMBERS, VALUE, {"booster": "dart", "rate_drop": 0.5}),
    "reg:logistic": (NUMBERS, GOOD, {}),
    "reg:absoluteerror": (NUMBERS, VALUE, {}),
    "count:poisson": (NUMBERS, np.maximum(VALUE, 0).round(), {}),
}


def matrix(table, truth=None):
    return xgb.DMatrix(table, label=truth, enable_categorical=True, nthread=1)


def train(table, truth, rounds=6, **params):
    limits = {} if params.get("booster") == "gblinear" else {"max_depth": 3}
    return xgb.train({"nthread": 1, "seed": 0, **limits, **params}, matrix(table, truth), rounds)


def booster(name):
    table, truth, params = BOOSTERS[name]
    return train(table, truth, objective=name.split(",")[0], **params), table


def as_table(table):
    return NUMBERS if isinstance(table, np.ndarray) else table


def margins(model, table):
    return model.predict(table, output_margin=True).astype(float)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_decides_and_scores_as_the_library_before_and_after_saving(name, tmp_path):
    model, table, truth = CLASSIFIERS[name]
    model, table = copy.deepcopy(model).fit(table, truth), as_table(table)
    opened = open_native(model, rows=table)
    assert opened.flavor == "xgboost"
    assert opened.classes == tuple(range(len(np.unique(truth))))
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    scores = opened.score(table)
    assert scores.dtype == np.float64
    assert opened.columns == (() if name == "fitted on an array" else tuple(table.columns))
    if name == "hinge":
        np.testing.assert_array_equal(scores[:, 1], margins(model, table))
    elif name == "margins":
        np.testing.assert_array_equal(scores[:, 1], margins(model, table) - 0.5)
    else:
        np.testing.assert_allclose(scores, model.predict_proba(table), atol=1e-7)
    assert opened.score_kind == ("margin" if name in ("hinge", "margins") else "probability")
    np.testing.assert_array_equal(scores.argmax(axis=1), model.predict(table))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    assert (tmp_path / "m" / "model.ubj").is_file()
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_answers_the_librarys_values_before_and_after_saving(name, tmp_path):
    model, table, truth = REGRESSORS[name]
    model = copy.deepcopy(model).fit(table, truth)
    opened = open_native(model, rows=table)
    assert opened.regression
    assert opened.score is None
    assert opened.decide(table).dtype == np.float64
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", BOOSTERS)
def test_a_booster_is_judged_by_its_scores_before_and_after_saving(name, tmp_path):
    model, table = booster(name)
    answers = model.predict(matrix(table)).astype(float)
    opened = open_native(model, rows=table)
    decided = opened.decide(table)
    match name.split(",")[0]:
        case "binary:logistic":
            np.testing.assert_array_equal(decided, answers > 0.5)
            np.testing.assert_array_equal(opened.score(table), np.column_stack((1 - answers, answers)))
        case "binary:logitraw":
            np.testing.assert_array_equal(decided, answers > 0)
            np.testing.assert_array_equal(opened.score(table)[:, 1], answers)
        case "binary:hinge" | "multi:softmax":
            np.testing.assert_array_equal(decided, answers)
        case "multi:softprob":
            np.testing.assert_array_equal(decided, answers.argmax(axis=1))
            np.testing.assert_array_equal(opened.score(table), answers)
        case _:
            assert opened.regression
            np.testing.assert_array_equal(decided, answers)
    if name == "multi:softmax":
        raw = model.predict(matrix(table), output_margin=True).astype(float)
        np.testing.assert_allclose(opened.score(table), softmax(raw, axis=1))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


def test_early_stopping_counts_for_an_estimator_and_not_for_a_booster(tmp_path):
    estimator = xgb.XGBClassifier(**EARLY)
    estimator.fit(NUMBERS[:200], GOOD[:200], eval_set=[(NUMBERS[200:], GOOD[200:])], verbose=False)
    trained = estimator.get_booster()
    assert estimator.best_iteration + 1 < trained.num_boosted_rounds()
    opened = open_native(estimator, rows=NUMBERS)
    np.testing.assert_allclose(opened.score(NUMBERS), estimator.predict_proba(NUMBERS), atol=1e-7)
    np.testing.assert_array_equal(opened.decide(NUMBERS), estimator.predict(NUMBERS))
    flavor.save(estimator, tmp_path / "m", signature=None, pip_requirements=["xgboost"])
    same_answers(opened, open_folder(tmp_path / "m", rows=NUMBERS), NUMBERS)
    raw = open_native(trained, rows=NUMBERS)
    np.testing.assert_array_equal(raw.score(NUMBERS)[:, 1], trained.predict(matrix(NUMBERS)).astype(float))
    assert "asks all" in raw.notes[0]


def test_missing_marked_by_a_number():
    table = NUMBERS.fillna(-999)
    model = xgb.XGBClassifier(**SMALL, missing=-999).fit(table, GOOD)
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_allclose(opened.score(table), model.predict_proba(table), atol=1e-7)


def test_a_missing_mark_that_the_format_forgets_cannot_be_saved(tmp_path):
    model = xgb.XGBClassifier(**SMALL, missing=-999).fit(NUMBERS.fillna(-999), GOOD)
    with pytest.raises(InputError, match="forgets missing=-999"):
        flavor.save(model, tmp_path / "m", signature=None, pip_requirements=[])
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("seen", ["other order", "more levels", "an unseen level", "fewer levels"])
def test_categories_are_read_by_name(seen):
    model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
    levels = {
        "other order": ["west", "south", "north"],
        "more levels": ["east", "west", "south", "north"],
        "an unseen level": ["east", "south", "north"],
        "fewer levels": ["south", "north"],
    }[seen]
    region = MIXED["region"].astype(object)
    region = region.replace("west", "east") if seen == "an unseen level" else region
    table = MIXED.assign(region=pd.Categorical(region.where(region.isin(levels)), categories=levels))
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_allclose(opened.score(table), model.predict_proba(table), atol=1e-7)


def test_columns_are_found_by_name():
    model = xgb.XGBClassifier(**SMALL).fit(NUMBERS, GOOD)
    table = NUMBERS[NUMBERS.columns[::-1]].assign(more="x")
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(NUMBERS))
    np.testing.assert_array_equal(opened.score(table), open_native(model).score(NUMBERS))


def test_nullable_dtypes():
    table = NUMBERS.astype({"age": "Int64", "income": "Float64", "owner": "boolean"})
    table.loc[3, ["age", "owner"]] = None
    model = xgb.XGBClassifier(**SMALL).fit(table, GOOD)
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_allclose(opened.score(table), model.predict_proba(table), atol=1e-7)


@pytest.mark.parametrize("name", ["binary:logistic, categories", "multi:softprob", "binary:logistic, dart"])
def test_the_array_the_search_uses_gives_the_bits_of_the_table(name, monkeypatch):
    model, table = booster(name)
    fast = open_native(model, rows=table).score(table)
    single = open_native(model, rows=table).score(table.iloc[[5]])
    tables_only(monkeypatch)
    np.testing.assert_array_equal(open_native(model, rows=table).score(table), fast)
    np.testing.assert_array_equal(single, fast[[5]])


def test_the_users_model_is_never_touched(tmp_path):
    model = xgb.XGBClassifier(**{**SMALL, "n_jobs": 2}).fit(NUMBERS, GOOD)
    trained = model.get_booster()
    before = bytes(trained.save_raw()), trained.save_config(), model.get_params()
    opened = open_native(model, rows=NUMBERS)
    opened.score(NUMBERS)
    opened.decide(NUMBERS)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["xgboost"])
    assert (bytes(trained.save_raw()), trained.save_config(), model.get_params()) == before
    assert model.get_booster() is trained


@pytest.mark.parametrize("name", ["binary:logistic, categories", "binary:logistic, dart", "binary:logistic, linear"])
def test_threads_get_the_same_answers(name):
    model, table = booster(name)
    opened = open_native(model)
    scores, labels = opened.score(table), opened.decide(table)
    with ThreadPoolExecutor(8) as pool:
        cold = open_native(model)
        for got in pool.map(lambda _: cold.score(table), range(24)):
            np.testing.assert_array_equal(got, scores)
        for got in pool.map(lambda _: cold.decide(table), range(24)):
            np.testing.assert_array_equal(got, labels)


REFUSED = {
    "ranks rows": lambda: train(NUMBERS, GOOD, objective="rank:pairwise"),
    "estimates survival": lambda: train(NUMBERS, np.abs(VALUE), objective="survival:cox"),
    "answers 2 values per row": lambda: train(NUMBERS, np.c_[VALUE, VALUE], objective="reg:squarederror"),
    "3 values per row": lambda: xgb.XGBRegressor(
        **SMALL, objective="reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9]
    ).fit(NUMBERS, VALUE),
    "XGBClassifier is not fitted": xgb.XGBClassifier,
    "values per row": lambda: xgb.XGBClassifier(**SMALL).fit(NUMBERS, np.c_[GOOD, 1 - GOOD]),
    "XGBRanker|ranks rows": lambda: xgb.XGBRanker(**SMALL).fit(NUMBERS, GOOD, qid=np.arange(len(GOOD)) // 50),
    "Booster is not fitted": xgb.Booster,
    "a single label": lambda: xgb.XGBClassifier(**SMALL).fit(NUMBERS, GOOD * 0),
}


@pytest.mark.parametrize("fact", REFUSED)
def test_what_gives_no_label_or_value_per_row_is_refused(fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(REFUSED[fact](), rows=NUMBERS)
    assert caught.value.path == "model"
    assert caught.value.fix


@pytest.mark.parametrize(
    ("objective", "native"),
    [
        ("survival:aft", True),  # the estimators take no intervals
        ("survival:cox", True),
        ("survival:cox", False),
        ("rank:pairwise", True),
        ("rank:pairwise", False),
    ],
)
def test_what_is_proposed_instead_of_ranks_and_survival_works(objective, native):
    bounds = {"label_lower_bound": np.exp(VALUE / 50), "label_upper_bound": np.exp(VALUE / 40)}
    if objective == "survival:aft":
        matrix = xgb.DMatrix(NUMBERS, **bounds)
        model = xgb.train({"objective": objective, "nthread": 1}, matrix, 5)
    elif native:
        model = train(NUMBERS, GOOD if "rank" in objective else np.abs(VALUE), objective=objective)
    elif objective == "survival:cox":
        model = xgb.XGBRegressor(**SMALL, objective=objective).fit(NUMBERS, np.abs(VALUE))
    else:
        model = xgb.XGBRanker(**SMALL, objective=objective).fit(NUMBERS, GOOD, qid=np.arange(len(GOOD)) // 50)
    with pytest.raises(InputError, match=objective) as caught:
        open_native(model, rows=NUMBERS)
    proposed = re.search(r"(lambda rows: .*), with output='(\w+)'", caught.value.fix)
    named = {"model": model, "xgboost": xgb}
    scores = model.predict(xgb.DMatrix(NUMBERS) if native else NUMBERS)
    cutoff = float(np.quantile(scores, 0.8))
    function = eval(proposed[1], {**named, "cutoff": cutoff})  # noqa: S307  what the error proposes
    target = 1 if "rank" in objective else mlflow_cf.Target(low=cutoff)
    explained = mlflow_cf.wrap(function, NUMBERS, output=proposed[2], target=target)
    (found,) = explained.explain(NUMBERS[scores < cutoff][:1], max_evaluations=2000)
    assert found.status == "found"


@pytest.mark.parametrize(("output", "kept"), [("label", False), ("score", True), (None, True)])
def test_output_of_a_classifier(output, kept):
    model = xgb.XGBClassifier(**SMALL).fit(NUMBERS, GOOD)
    opened = open_native(model, output=output, rows=NUMBERS)
    assert (opened.score is not None) == kept
    assert (opened.score_kind == "probability") == kept
    with pytest.raises(InputError, match="output: 'value' does not fit XGBClassifier; leave it out or use 'label'"):
        open_native(model, output="value")


def test_output_of_a_regression():
    model, table = booster("reg:squarederror")
    assert open_native(model, output="value", rows=table).regression
    with pytest.raises(InputError, match="output: 'score' does not fit Booster"):
        open_native(model, output="score")


def test_rows_the_model_cannot_take_are_an_error_when_opening():
    model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
    with pytest.raises(InputError, match=r"data: lacks the columns \['region', 'grade'\]"):
        open_native(model, rows=NUMBERS)
    with pytest.raises(InputError, match="category dtype") as caught:
        open_native(model, rows=MIXED.astype({"region": object}))
    assert "['region']" in caught.value.fix
    with pytest.raises(InputError, match="cannot answer these rows"):
        open_native(model, rows=MIXED.assign(grade=MIXED["grade"].astype(int)))


def test_a_class_of_ones_own_cannot_be_saved(tmp_path):
    class Own(xgb.XGBClassifier):
        pass

    with pytest.raises(InputError, match=r"mlflow\.xgboost\.log_model\(model, name='model'\)"):
        flavor.save(Own(**SMALL).fit(NUMBERS, GOOD), tmp_path / "m", signature=None, pip_requirements=[])


def test_what_cannot_be_copied_names_the_way_out():
    class Callback(xgb.callback.TrainingCallback):
        def __deepcopy__(self, memo):
            raise TypeError

    model = xgb.XGBClassifier(**SMALL, callbacks=[Callback()]).fit(NUMBERS, GOOD)
    with pytest.raises(InputError, match="set_params"):
        open_native(model)
    assert open_native(model.set_params(callbacks=None)).classes == (0, 1)


def test_a_pipeline_around_it_stays_scikit_learns():
    model = make_pipeline(StandardScaler(), xgb.XGBClassifier(**SMALL)).fit(NUMBERS, GOOD)
    assert flavor_of(model).MLFLOW_FLAVOR == "sklearn"
    assert flavor_of(model[-1]).MLFLOW_FLAVOR == "xgboost"


def test_a_pyfunc_is_opened_through_the_model_inside(tmp_path):
    model = xgb.XGBClassifier(**SMALL).fit(NUMBERS, GOOD)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["xgboost"])
    opened = open_native(mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True), rows=NUMBERS)
    assert opened.flavor == "xgboost"
    same_answers(opened, open_native(model), NUMBERS)


class TestCounterfactuals:
    """End to end; every counterfactual is decided again by the library alone."""

    def test_binary(self):
        model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
        explained = mlflow_cf.wrap(model, MIXED, constraints={"immutable": ["age"]})
        rows = MIXED[model.predict(MIXED) == 0].head(6)
        answers = check_counterfactuals(explained, rows, lambda table: model.predict(table) == 1)
        assert all(one.row["age"] == row["age"] for one, row in zip_found(answers, rows))

    @pytest.mark.parametrize("name", ["binary:logistic, categories", "binary:logistic, dart", "binary:logitraw"])
    def test_booster(self, name):
        model, table = booster(name)
        cut = 0 if name == "binary:logitraw" else 0.5
        rows = table[model.predict(matrix(table)) <= cut].head(6)
        explained = mlflow_cf.wrap(model, table, target=1)
        check_counterfactuals(explained, rows, lambda table: model.predict(matrix(table)) > cut)

    @pytest.mark.parametrize("target", [2, mlflow_cf.Target.other(), mlflow_cf.Target(label=2)], ids=repr)
    def test_several_classes(self, target):
        model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, CLASS)
        explained = mlflow_cf.wrap(model, MIXED, target=target)
        rows = MIXED[model.predict(MIXED) == 0].head(6)
        other = target == mlflow_cf.Target.other()
        check_counterfactuals(explained, rows, lambda t: model.predict(t) != 0 if other else model.predict(t) == 2)

    @pytest.mark.parametrize("kind", ["estimator", "booster"])
    def test_regression(self, kind):
        model = xgb.XGBRegressor(**SMALL, **NATIVE).fit(MIXED, VALUE)
        low, high = (float(q) for q in np.quantile(model.predict(MIXED), [0.7, 0.8]))
        inner = model if kind == "estimator" else model.get_booster()
        explained = mlflow_cf.wrap(inner, MIXED, target=mlflow_cf.Target(low=low, high=high))
        rows = MIXED[model.predict(MIXED) < low].head(6)
        check_counterfactuals(explained, rows, lambda t: (model.predict(t) >= low) & (model.predict(t) <= high))

    @pytest.mark.parametrize("kind", ["estimator", "booster"])
    def test_saved_and_loaded(self, kind, tmp_path):
        model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
        rows = MIXED[model.predict(MIXED) == 0].head(4)
        inner = model if kind == "estimator" else model.get_booster()
        mlflow_cf.save_model(inner, tmp_path / "m", MIXED, target=1)
        before = mlflow_cf.wrap(inner, MIXED, target=1).predict(rows)
        after = mlflow_cf.load_model(tmp_path / "m").predict(rows)
        pd.testing.assert_frame_equal(before, after)

    def test_a_row_with_an_unseen_level_leaves_the_others_alone(self):
        model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
        explained = mlflow_cf.wrap(model, MIXED)
        rows = MIXED[model.predict(MIXED) == 0].head(3).astype({"region": object}).reset_index(drop=True)
        alone = explained.explain(rows.iloc[[1, 2]])
        rows.loc[0, "region"] = "east"
        answers = explained.explain(rows)
        assert [one.status for one in answers] == ["found"] * 3
        assert [one.counterfactuals for one in answers[1:]] == [one.counterfactuals for one in alone]

    def test_served_rows_have_no_categories(self, tmp_path):
        model = xgb.XGBClassifier(**SMALL, **NATIVE).fit(MIXED, GOOD)
        mlflow_cf.save_model(model, tmp_path / "m", MIXED, target=1)
        served = mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True)
        rows = MIXED.tail(200).astype({"debt": "float64"}).reset_index(drop=True)
        reply = served.predict(as_json_brings_them(rows), {"counterfactual": {"explain": "none"}})
        assert reply["prediction"].tolist() == model.predict(rows).tolist()
