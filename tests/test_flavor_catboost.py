"""CatBoost: opened to labels, scores and values that are the library's own to the bit; what it cannot do is refused."""

import copy
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

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
    zip_found,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native

cb = pytest.importorskip("catboost")
flavor = pytest.importorskip("mlflow_cf_flavors.catboost.flavor")

QUIET = {"logging_level": "Silent", "allow_writing_files": False, "thread_count": 1}
SMALL = {**QUIET, "iterations": 6, "depth": 3, "learning_rate": 0.4, "one_hot_max_size": 9}
LEVELS = ["region", "grade"]
WHOLE = MIXED.assign(region=MIXED["region"].cat.add_categories("none").fillna("none"))  # CatBoost takes no gaps there
COUNTS = WHOLE.assign(grade=WHOLE["grade"].astype(int), region=WHOLE["region"].astype(object))
FLAGS = WHOLE.assign(owner=WHOLE["owner"].astype("boolean"))
STATISTICS = {**SMALL, "one_hot_max_size": 2}

CLASSIFIERS = {
    "binary": (SMALL, NUMBERS, GOOD),
    "boolean labels": (SMALL, NUMBERS, GOOD == 1),
    "words": (SMALL, NUMBERS, WORD),
    "words, two": (SMALL, NUMBERS, np.where(GOOD, "good", "bad")),
    "labels that are fractions": (SMALL, NUMBERS, GOOD / 2),
    "three classes": (SMALL, NUMBERS, CLASS * 10),
    "one versus all": ({**SMALL, "loss_function": "MultiClassOneVsAll"}, NUMBERS, CLASS),
    "cross entropy": ({**SMALL, "loss_function": "CrossEntropy"}, NUMBERS, GOOD),
    "categories": ({**SMALL, "cat_features": LEVELS}, WHOLE, GOOD),
    "categories, numbers": ({**SMALL, "cat_features": LEVELS}, COUNTS, GOOD),
    "categories, flags": ({**SMALL, "cat_features": [*LEVELS, "owner"]}, FLAGS, WORD),
    "categories, statistics": ({**STATISTICS, "cat_features": LEVELS}, WHOLE, WORD),
    "lossguide": ({**SMALL, "grow_policy": "Lossguide", "cat_features": LEVELS}, WHOLE, GOOD),
    "depthwise": ({**SMALL, "grow_policy": "Depthwise"}, NUMBERS, WORD),
    "fitted on an array": (SMALL, NUMBERS.to_numpy(dtype=float), GOOD),
}
REGRESSORS = {
    "squares": (SMALL, NUMBERS, VALUE),
    "categories": ({**SMALL, "cat_features": LEVELS}, WHOLE, VALUE),
    "quantile": ({**SMALL, "loss_function": "Quantile:alpha=0.7"}, NUMBERS, VALUE),
    "missing numbers are large": ({**SMALL, "nan_mode": "Max"}, NUMBERS, VALUE),
    "counts": ({**SMALL, "loss_function": "Poisson"}, NUMBERS, np.maximum(VALUE, 0).round()),
    "tweedie": ({**SMALL, "loss_function": "Tweedie:variance_power=1.5"}, NUMBERS, np.maximum(VALUE, 0)),
}
PLAIN = {
    "Logloss": (NUMBERS, GOOD),
    "Logloss, categories": (WHOLE, GOOD),
    "MultiClass": (NUMBERS, WORD),
    "RMSE": (NUMBERS, VALUE),
    "Poisson": (NUMBERS, np.maximum(VALUE, 0).round()),
}


def classifier(name):
    options, table, truth = CLASSIFIERS[name]
    model = cb.CatBoostClassifier(**options).fit(table, truth)
    return model, NUMBERS if name == "fitted on an array" else table


def plain(name):
    table, truth = PLAIN[name]
    categories = LEVELS if "categories" in name else []
    model = cb.CatBoost({**SMALL, "loss_function": name.split(",")[0], "cat_features": categories})
    return model.fit(table, truth), table


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_decides_and_scores_as_the_library_before_and_after_saving(name, tmp_path):
    model, table = classifier(name)
    opened = open_native(model, rows=table)
    assert opened.flavor == "catboost"
    assert opened.classes == tuple(np.unique(CLASSIFIERS[name][2]).tolist())
    assert {type(label) for label in opened.classes} <= {int, str, bool, float}
    labels, scores = model.predict(table).reshape(-1), opened.score(table)
    assert opened.decide(table).tolist() == labels.tolist()
    assert {type(label) for label in opened.decide(table).tolist()} == {type(label) for label in opened.classes}
    if name == "one versus all":
        np.testing.assert_array_equal(scores, model.predict(table, prediction_type="RawFormulaVal"))
    else:
        np.testing.assert_array_equal(scores, model.predict_proba(table))
    assert opened.score_kind == ("margin" if name == "one versus all" else "probability")
    assert np.array(opened.classes)[scores.argmax(axis=1)].tolist() == labels.tolist()
    assert opened.columns == (() if name == "fitted on an array" else tuple(table.columns))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    assert (tmp_path / "m" / "model.cb").is_file()
    assert not list((tmp_path / "m").glob("*.pkl"))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_answers_the_librarys_values_before_and_after_saving(name, tmp_path):
    options, table, truth = REGRESSORS[name]
    model = cb.CatBoostRegressor(**options).fit(table, truth)
    opened = open_native(model, rows=table)
    assert opened.regression
    assert opened.score is None
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


@pytest.mark.parametrize("name", PLAIN)
def test_the_objective_of_the_plain_class_says_what_it_answers(name, tmp_path):
    model, table = plain(name)
    opened = open_native(model, rows=table)
    if name in ("RMSE", "Poisson"):
        assert opened.regression
        np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    else:
        labels = model.predict(table, prediction_type="Class").reshape(-1)
        assert opened.decide(table).tolist() == labels.tolist()
        np.testing.assert_array_equal(opened.score(table), model.predict(table, prediction_type="Probability"))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)


def test_a_threshold_of_its_own_decides(tmp_path):
    model, table = classifier("words, two")
    model.set_probability_threshold(0.2)
    opened = open_native(model, rows=table)
    likely = model.predict_proba(table)[:, 1] > 0.2
    assert opened.decide(table).tolist() == np.where(likely, "good", "bad").tolist()
    assert opened.notes == ("answers 'good' where its probability exceeds 0.2",)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["catboost"])
    same_answers(opened, open_folder(tmp_path / "m", rows=table), table)
    explained = mlflow_cf.wrap(model, table, target="good")
    assert "its label is not that of the largest score" in explained.describe()["structure"]
    check_counterfactuals(explained, table[~likely].head(6), lambda rows: model.predict_proba(rows)[:, 1] > 0.2)


def test_early_stopping_keeps_the_best_rounds(tmp_path):
    model = cb.CatBoostClassifier(**{**SMALL, "iterations": 80, "learning_rate": 1.0}, early_stopping_rounds=2)
    model.fit(NUMBERS[:200], GOOD[:200], eval_set=(NUMBERS[200:], GOOD[200:]))
    assert model.tree_count_ < 80
    opened = open_native(model, rows=NUMBERS)
    np.testing.assert_array_equal(opened.score(NUMBERS), model.predict_proba(NUMBERS))
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["catboost"])
    same_answers(opened, open_folder(tmp_path / "m", rows=NUMBERS), NUMBERS)


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.3, 0.7]])
def test_a_sum_of_models_says_no_objective(weights):
    parts = [cb.CatBoostClassifier(**SMALL, random_seed=seed).fit(NUMBERS, GOOD) for seed in (0, 1)]
    model = cb.to_classifier(cb.sum_models(parts, weights=weights))
    opened = open_native(model, rows=NUMBERS)
    np.testing.assert_array_equal(opened.score(NUMBERS), model.predict_proba(NUMBERS))
    explained = mlflow_cf.wrap(model, NUMBERS, target=1)
    assert explained.opened.structure is not None, explained.opened.note


def test_columns_are_found_by_name():
    model, table = classifier("categories")
    shuffled = table[table.columns[::-1]].assign(more="x")
    opened = open_native(model, rows=shuffled)
    assert opened.decide(shuffled).tolist() == model.predict(table).tolist()
    np.testing.assert_array_equal(opened.score(shuffled), model.predict_proba(table))


def test_nullable_dtypes():
    table = NUMBERS.astype({"age": "Int64", "income": "Float64", "owner": "boolean"})
    table.loc[3, "age"] = None
    model = cb.CatBoostClassifier(**SMALL).fit(table, GOOD)
    opened = open_native(model, rows=table)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_array_equal(opened.score(table), model.predict_proba(table))
    table.loc[3, "owner"] = None
    with pytest.raises(cb.CatBoostError, match="Bad value"):  # as the library itself, which takes no such gaps
        opened.score(table)


@pytest.mark.parametrize("name", ["binary", "three classes", "categories", "categories, numbers", "categories, flags"])
def test_the_array_the_search_uses_gives_the_bits_of_the_table(name, monkeypatch):
    model, table = classifier(name)
    opened = open_native(model, rows=table)
    fast, single = opened.score(table.iloc[:200]), opened.score(table.iloc[[5]])
    monkeypatch.setattr("mlflow_cf_flavors.catboost.columns.CatBoostColumns.array", lambda _self, _table: None)
    np.testing.assert_array_equal(opened.score(table.iloc[:200]), fast)
    np.testing.assert_array_equal(single, fast[[5]])


def test_the_users_model_is_never_touched(tmp_path):
    model, table = classifier("categories")
    before = copy.deepcopy(model), model.get_params(), dict(model.get_metadata())
    opened = open_native(model, rows=table)
    opened.score(table)
    opened.decide(table)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["catboost"])
    assert model == before[0]
    assert (model.get_params(), dict(model.get_metadata())) == before[1:]


@pytest.mark.parametrize("name", ["categories", "three classes", "lossguide"])
def test_threads_get_the_same_answers(name, tmp_path):
    model, table = classifier(name)
    opened = open_native(model, rows=table)
    scores, labels = opened.score(table), opened.decide(table)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["catboost"])
    with ThreadPoolExecutor(8) as pool:
        cold = open_folder(tmp_path / "m")
        for got in pool.map(lambda _: cold.score(table), range(24)):
            np.testing.assert_array_equal(got, scores)
        for got in pool.map(lambda _: opened.score(table), range(24)):
            np.testing.assert_array_equal(got, scores)
        for got in pool.map(lambda _: opened.decide(table), range(24)):
            np.testing.assert_array_equal(got, labels)


class OwnLoss:
    """Squares, written in Python."""

    def calc_ders_range(self, approxes, targets, weights):
        del weights
        return [(target - approx, -1.0) for approx, target in zip(approxes, targets, strict=True)]


GROUPS = np.arange(len(GOOD)) // 50
OWN = {**SMALL, "iterations": 2, "loss_function": OwnLoss(), "eval_metric": "RMSE"}
REFUSED = {
    "objective YetiRank ranks rows": lambda: cb.CatBoostRanker(**SMALL).fit(NUMBERS, GOOD, group_id=GROUPS),
    "objective QueryRMSE ranks rows": lambda: cb.CatBoost({**SMALL, "loss_function": "QueryRMSE"}).fit(
        NUMBERS, GOOD, group_id=GROUPS
    ),
    "Cox estimates survival": lambda: cb.CatBoostRegressor(**SMALL, loss_function="Cox").fit(NUMBERS, np.abs(VALUE)),
    "MultiRMSE answers several values": lambda: cb.CatBoostRegressor(**SMALL, loss_function="MultiRMSE").fit(
        NUMBERS, np.c_[VALUE, VALUE]
    ),
    "RMSEWithUncertainty answers several": lambda: cb.CatBoostRegressor(
        **SMALL, loss_function="RMSEWithUncertainty"
    ).fit(NUMBERS, VALUE),
    "MultiLogloss answers several": lambda: cb.CatBoostClassifier(**SMALL, loss_function="MultiLogloss").fit(
        NUMBERS, np.c_[GOOD, 1 - GOOD]
    ),
    "CatBoostClassifier is not fitted": cb.CatBoostClassifier,
    "objective of your own": lambda: cb.CatBoostClassifier(**OWN).fit(NUMBERS[:200], GOOD[:200]),
    "answers have no known meaning": lambda: cb.CatBoost(OWN).fit(NUMBERS[:200], GOOD[:200]),
}


PYTHON_LOSS = pytest.mark.filterwarnings("ignore:.*optimize method .calc_ders_range:UserWarning")  # CatBoost, of numba


@PYTHON_LOSS
@pytest.mark.parametrize("fact", REFUSED)
def test_what_gives_no_label_or_value_per_row_is_refused(fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(REFUSED[fact](), rows=NUMBERS)
    assert caught.value.path == "model"
    assert caught.value.fix


@PYTHON_LOSS
@pytest.mark.parametrize("kind", [cb.CatBoostRegressor, lambda **options: cb.CatBoost(options)])
def test_an_objective_of_ones_own_is_fine_where_the_answers_are_values(kind):
    model = kind(**OWN).fit(NUMBERS[:200], VALUE[:200])
    opened = open_native(model, output="value", rows=NUMBERS)
    np.testing.assert_array_equal(opened.decide(NUMBERS), model.predict(NUMBERS))


@pytest.mark.parametrize(("output", "kept"), [("label", False), ("score", True), (None, True)])
def test_output_of_a_classifier(output, kept):
    model, table = classifier("binary")
    opened = open_native(model, output=output, rows=table)
    assert (opened.score is not None) == kept
    assert (opened.score_kind == "probability") == kept
    with pytest.raises(
        InputError, match="output: 'value' does not fit CatBoostClassifier; leave it out or use 'label'"
    ):
        open_native(model, output="value")


def test_rows_the_model_cannot_take_are_an_error_when_opening():
    model, table = classifier("categories")
    with pytest.raises(InputError, match=r"data: lacks the columns \['region', 'grade'\]"):
        open_native(model, rows=NUMBERS)
    gaps = table["region"].where(table["region"] != "south")
    rows = table.assign(region=gaps).sort_values("region", na_position="first")
    with pytest.raises(InputError, match=r"cannot answer these rows .*; \['region'\] have missing values") as caught:
        open_native(model, rows=rows)
    assert "a category of its own" in caught.value.fix


def test_a_class_of_ones_own_cannot_be_saved(tmp_path):
    class Own(cb.CatBoostClassifier):
        pass

    with pytest.raises(InputError, match=r"mlflow\.catboost\.log_model\(model, name='model'\)"):
        flavor.save(Own(**SMALL).fit(NUMBERS, GOOD), tmp_path / "m", signature=None, pip_requirements=[])


def test_a_pipeline_around_it_stays_scikit_learns():
    model = make_pipeline(StandardScaler(), cb.CatBoostClassifier(**SMALL)).fit(NUMBERS, GOOD)
    assert flavor_of(model).MLFLOW_FLAVOR == "sklearn"
    assert flavor_of(model[-1]).MLFLOW_FLAVOR == "catboost"


def test_a_pyfunc_is_opened_through_the_model_inside(tmp_path):
    model, table = classifier("words")
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["catboost"])
    opened = open_native(mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True), rows=table)
    assert opened.flavor == "catboost"
    same_answers(opened, open_native(model, rows=table), table)


class TestCounterfactuals:
    """End to end; every counterfactual is decided again by the library alone."""

    options = MappingProxyType({**SMALL, "cat_features": LEVELS})

    def test_binary(self):
        model = cb.CatBoostClassifier(**self.options).fit(WHOLE, np.where(GOOD, "good", "bad"))
        explained = mlflow_cf.wrap(model, WHOLE, target="good", constraints={"immutable": ["age"]})
        rows = WHOLE[model.predict(WHOLE) == "bad"].head(6)
        answers = check_counterfactuals(explained, rows, lambda table: model.predict(table) == "good", certify=True)
        assert all(one.row["age"] == row["age"] for one, row in zip_found(answers, rows))
        assert all(one.proof == "optimal" for answer in answers for one in answer.counterfactuals)

    @pytest.mark.parametrize("name", ["Logloss", "Logloss, categories"])
    def test_plain_class(self, name):
        model, table = plain(name)
        explained = mlflow_cf.wrap(model, table, target=1)
        rows = table[model.predict(table) <= 0].head(6)
        check_counterfactuals(explained, rows, lambda table: model.predict(table) > 0)

    @pytest.mark.parametrize("target", ["top", mlflow_cf.Target.other(), mlflow_cf.Target(label="top")], ids=repr)
    def test_several_classes(self, target):
        model = cb.CatBoostClassifier(**self.options).fit(WHOLE, WORD)
        explained = mlflow_cf.wrap(model, WHOLE, target=target)
        rows = WHOLE[model.predict(WHOLE).reshape(-1) == "low"].head(6)
        other = target == mlflow_cf.Target.other()
        check_counterfactuals(
            explained, rows, lambda t: model.predict(t) != "low" if other else model.predict(t) == "top"
        )

    def test_regression(self):
        model = cb.CatBoostRegressor(**self.options).fit(WHOLE, VALUE)
        answers = model.predict(WHOLE)
        low, high = np.quantile(answers, [0.7, 0.8])
        explained = mlflow_cf.wrap(model, WHOLE, target=mlflow_cf.Target(low=low, high=high))
        rows = WHOLE[answers < low].head(6)
        check_counterfactuals(explained, rows, lambda t: (model.predict(t) >= low) & (model.predict(t) <= high))

    @pytest.mark.parametrize("values", ["observed", "continuous"])
    def test_whole_numbers_that_are_categories(self, values):
        model = cb.CatBoostClassifier(**self.options).fit(COUNTS, GOOD)
        explained = mlflow_cf.wrap(model, COUNTS, target=1, values=values)
        rows = COUNTS[model.predict(COUNTS) == 0].head(6)
        check_counterfactuals(explained, rows, lambda table: model.predict(table) == 1)

    def test_statistics_of_categories_are_scored(self):
        model, table = classifier("categories, statistics")
        explained = mlflow_cf.wrap(model, table, target="top")
        assert "statistics of categories (CTR) of region, grade" in explained.describe()["structure"]
        rows = table[model.predict(table).reshape(-1) == "low"].head(4)
        check_counterfactuals(explained, rows, lambda table: model.predict(table) == "top")

    def test_saved_and_loaded(self, tmp_path):
        model = cb.CatBoostClassifier(**self.options).fit(WHOLE, WORD)
        mlflow_cf.save_model(model, tmp_path / "m", WHOLE, target="top")
        rows = WHOLE[model.predict(WHOLE).reshape(-1) == "low"].head(4)
        before = mlflow_cf.wrap(model, WHOLE, target="top").predict(rows)
        after = mlflow_cf.load_model(tmp_path / "m").predict(rows)
        pd.testing.assert_frame_equal(before, after)

    def test_a_row_with_a_missing_level_leaves_the_others_alone(self):
        model = cb.CatBoostClassifier(**self.options).fit(WHOLE, GOOD)
        explained = mlflow_cf.wrap(model, WHOLE, target=1)
        rows = WHOLE[model.predict(WHOLE) == 0].head(3).reset_index(drop=True)
        alone = explained.explain(rows.iloc[[1, 2]])
        answers = explained.explain(rows.assign(region=rows["region"].where(rows.index != 0)))
        assert [one.status for one in answers] == ["invalid", "found", "found"]
        assert [one.counterfactuals for one in answers[1:]] == [one.counterfactuals for one in alone]

    def test_served_rows_have_no_categories(self, tmp_path):
        model = cb.CatBoostClassifier(**self.options).fit(WHOLE, GOOD)
        mlflow_cf.save_model(model, tmp_path / "m", WHOLE, target=1)
        served = mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True)
        rows = WHOLE.tail(200).astype({"debt": "float64"}).reset_index(drop=True)
        reply = served.predict(as_json_brings_them(rows), {"counterfactual": {"explain": "none"}})
        assert reply["prediction"].tolist() == model.predict(rows).tolist()


class TestInAPipeline:
    """The last step of a pipeline, logged by scikit-learn's flavor."""

    def pipeline(self, truth, **options):
        return make_pipeline(StandardScaler(), cb.CatBoostClassifier(**SMALL, **options)).fit(NUMBERS, truth)

    def test_labels_of_several_classes(self, tmp_path):
        model = self.pipeline(WORD)
        mlflow_cf.save_model(model, tmp_path / "m", NUMBERS, target="top")
        explained = mlflow_cf.load_model(tmp_path / "m")
        assert explained.opened.structure is not None, explained.opened.note
        rows = NUMBERS[model.predict(NUMBERS).reshape(-1) == "low"].head(4)
        check_counterfactuals(explained, rows, lambda table: model.predict(table).reshape(-1) == "top")

    def test_a_threshold_of_its_own_decides(self):
        model = self.pipeline(GOOD)
        model[-1].set_probability_threshold(0.2)
        opened = open_native(model, rows=NUMBERS)
        likely = (model.predict_proba(NUMBERS)[:, 1] > 0.2).astype(int)
        np.testing.assert_array_equal(opened.decide(NUMBERS), likely)
        np.testing.assert_array_equal(opened.both(NUMBERS)[0], likely)

    def test_probabilities_that_do_not_add_up_are_scored(self):
        model = self.pipeline(CLASS, loss_function="MultiClassOneVsAll")
        explained = mlflow_cf.wrap(model, NUMBERS, target=2)
        assert "MultiClassOneVsAll" in explained.describe()["structure"]
        rows = NUMBERS[model.predict(NUMBERS).reshape(-1) == 0].head(4)
        check_counterfactuals(explained, rows, lambda table: model.predict(table).reshape(-1) == 2)

    def test_a_search_for_parameters(self):
        search = GridSearchCV(cb.CatBoostRegressor(**SMALL), {"depth": [2, 3]}, cv=2).fit(NUMBERS, VALUE)
        explained = mlflow_cf.wrap(search, NUMBERS, target=mlflow_cf.Target(low=40.0))
        assert explained.opened.structure is not None, explained.opened.note
        np.testing.assert_array_equal(explained.model.decide(NUMBERS), search.predict(NUMBERS))
