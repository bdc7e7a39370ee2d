"""scikit-learn estimators: opened to labels and scores, written without pickle, clear errors for the rest."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import mlflow.sklearn
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import open_folder, open_native
from mlflow_cf_flavors.sklearn import flavor
from mlflow_cf_flavors.sklearn.skops_types import ALL_TRUSTED, TRUSTED_TYPES

ROWS = 120
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, ROWS),
        "income": RNG.normal(40, 10, ROWS).round(2),
        "debt": np.where(RNG.random(ROWS) < 0.1, np.nan, RNG.normal(5, 2, ROWS)),
        "job": RNG.choice(["clerk", "cook", "nurse"], ROWS),
        "owner": RNG.choice([True, False], ROWS),
        "region": pd.Categorical(RNG.choice(["north", "south"], ROWS)),
    }
)
NUMBERS = TABLE[["age", "income"]]
GOOD = np.where(TABLE["income"] + 5 * TABLE["owner"] > 40, "good", "bad")
VALUE = TABLE["income"].to_numpy() * 2 + TABLE["age"].to_numpy()
LEVELS = ["job", "region"]


def mixed(encoder=None):
    """Return a preparation of the whole table."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = encoder or OneHotEncoder(handle_unknown="ignore")
    return ColumnTransformer([("numbers", numbers, ["age", "income", "debt"]), ("levels", encoder, LEVELS)])


CLASSIFIERS = {
    "decision tree": DecisionTreeClassifier(max_depth=3),
    "random forest": RandomForestClassifier(5),
    "extra trees": ExtraTreesClassifier(5),
    "gradient boosting": GradientBoostingClassifier(n_estimators=3),
    "hist gradient boosting": HistGradientBoostingClassifier(max_iter=3),
    "mlp adam": MLPClassifier((3,), max_iter=400, tol=1.0),
    "mlp sgd": MLPClassifier((3,), solver="sgd", max_iter=400, tol=1.0),
    "mlp lbfgs": MLPClassifier((3,), solver="lbfgs", max_iter=2000, tol=1.0),
    "logistic": LogisticRegression(max_iter=1000),
    "logistic cv": LogisticRegressionCV(
        cv=2, max_iter=1000, scoring="accuracy", l1_ratios=(0.0,), use_legacy_attributes=False
    ),
    "ridge": RidgeClassifier(),
    "sgd": SGDClassifier(),
    "linear svc": LinearSVC(),
    "svc": SVC(),
    "neighbours": KNeighborsClassifier(),
    "neighbours, ball tree": KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    "naive bayes": GaussianNB(),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
    "calibrated, isotonic": CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    "calibrated, temperature": CalibratedClassifierCV(GaussianNB(), method="temperature", cv=2),
    "soft voting": VotingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier())], voting="soft"),
    "hard voting": VotingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier())]),
    "stacking": StackingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier())], cv=2),
    "ada boost": AdaBoostClassifier(n_estimators=3),
    "bagging": BaggingClassifier(n_estimators=3),
    "bins": make_pipeline(KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), LogisticRegression()),
    "polynomials": make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression(max_iter=1000)),
    "union": make_pipeline(make_union(StandardScaler(), MinMaxScaler(), RobustScaler()), LogisticRegression()),
    "search": GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2, scoring="roc_auc"),
}
PIPELINES = {
    "one hot": make_pipeline(mixed(), LogisticRegression()),
    "forest on one hot": make_pipeline(mixed(), RandomForestClassifier(5)),
    "ordinal": make_pipeline(mixed(OrdinalEncoder()), HistGradientBoostingClassifier(max_iter=3)),
    "target encoder": make_pipeline(mixed(TargetEncoder(cv=2)), LogisticRegression()),
    "selector": make_pipeline(
        make_column_transformer((SimpleImputer(), make_column_selector(dtype_include=np.number))), LogisticRegression()
    ),
    "calibrated pipeline": CalibratedClassifierCV(make_pipeline(mixed(), LogisticRegression()), cv=2),
    "categories": make_pipeline(
        make_column_transformer(("passthrough", ["age", "income", "debt", "region"])).set_output(transform="pandas"),
        HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype"),
    ),
}
REGRESSORS = {
    "linear": LinearRegression(),
    "ridge": Ridge(),
    "sgd": make_pipeline(StandardScaler(), SGDRegressor()),
    "svr": SVR(),
    "decision tree": DecisionTreeRegressor(max_depth=3),
    "random forest": RandomForestRegressor(5),
    "gradient boosting": GradientBoostingRegressor(n_estimators=3),
    "hist gradient boosting": HistGradientBoostingRegressor(max_iter=3),
}
FITTED = (
    [pytest.param(model, NUMBERS, GOOD, id=name) for name, model in CLASSIFIERS.items()]
    + [pytest.param(model, TABLE, GOOD, id=name) for name, model in PIPELINES.items()]
    + [pytest.param(model, NUMBERS, VALUE, id=f"{name} regressor") for name, model in REGRESSORS.items()]
)


@pytest.mark.parametrize(("model", "table", "y"), FITTED)
def test_opens_and_comes_back_from_disk_the_same(model, table, y, tmp_path):
    model.fit(table, y)
    opened = open_native(model, rows=table)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(model))
    again = open_folder(tmp_path / "m", rows=table)
    assert opened.flavor == again.flavor == "sklearn"
    assert opened.columns == again.columns == tuple(table.columns)
    np.testing.assert_array_equal(opened.decide(table), model.predict(table))
    np.testing.assert_array_equal(again.decide(table), model.predict(table))
    if opened.score is None:
        assert opened.score_kind == "none"
        return
    scores = opened.score(table)
    assert scores.shape == (ROWS, 2)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(again.score(table), scores)
    np.testing.assert_array_equal(np.array(opened.classes)[scores.argmax(axis=1)], model.predict(table))


QUIET = {
    "xgboost": ("XGBClassifier", {}),
    "lightgbm": ("LGBMClassifier", {"verbose": -1}),
    "catboost": ("CatBoostClassifier", {"logging_level": "Silent", "allow_writing_files": False}),
}


@pytest.mark.parametrize("library", QUIET)
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in a pipeline"])
def test_boosting_libraries_with_the_same_interface(library, wrapped, tmp_path):
    module = pytest.importorskip(library)
    kind, quiet = QUIET[library]
    model = getattr(module, kind)(n_estimators=3, **quiet)
    model = make_pipeline(StandardScaler(), model) if wrapped else model
    table = NUMBERS.rename(columns={"age": "age in years"})
    model.fit(table, (GOOD == "good").astype(int))
    pins = flavor.requirements(model)
    assert any(pin.startswith(f"{library}==") for pin in pins)
    flavor.save(model, tmp_path / "m", signature=None, pip_requirements=pins)
    opened = open_folder(tmp_path / "m", rows=table)
    assert opened.columns == ("age in years", "income")
    assert opened.classes == (0, 1)
    np.testing.assert_array_equal(opened.decide(table[["income", "age in years"]]), model.predict(table))
    np.testing.assert_allclose(opened.score(table), model.predict_proba(table))


class BalancedForest(RandomForestClassifier):
    """A forest with a decision rule of its own."""

    def predict(self, X):
        return self.classes_[np.argmin(self.predict_proba(X), axis=1)]


def test_classes_are_plain_python_values():
    ints = open_native(DecisionTreeClassifier().fit(NUMBERS, np.arange(ROWS) % 2))
    assert [type(label) for label in ints.classes] == [int, int]
    strings = open_native(DecisionTreeClassifier().fit(NUMBERS, GOOD))
    assert strings.classes == ("bad", "good")
    assert {type(label) for label in strings.classes} == {str}
    booleans = open_native(DecisionTreeClassifier().fit(NUMBERS, GOOD == "good"))
    assert booleans.classes == (False, True)
    assert {type(label) for label in booleans.classes} == {bool}


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier, BalancedForest])
@pytest.mark.parametrize("labels", [np.arange(ROWS) % 3, np.array(["x", "y"] * (ROWS // 2) + ["y"] * (ROWS % 2))])
def test_a_forest_is_asked_once_and_gives_its_own_labels(kind, labels):
    """Two trees of pure leaves: ties between classes are common."""
    model = make_pipeline(StandardScaler(), kind(2, random_state=0)).fit(NUMBERS, labels)
    rows = NUMBERS / 2  # not those it knows by heart
    answers, scores = open_native(model).both(rows)
    np.testing.assert_array_equal(answers, model.predict(rows))
    np.testing.assert_array_equal(scores, model.predict_proba(rows))
    assert (scores == 0.5).any()


def test_a_regressor_answers_float_values_and_has_no_classes():
    opened = open_native(DecisionTreeRegressor(max_depth=2).fit(NUMBERS, NUMBERS["age"]))
    assert opened.regression
    assert opened.score is None
    assert opened.decide(NUMBERS).dtype == np.float64
    column = DecisionTreeRegressor(max_depth=2).fit(NUMBERS, NUMBERS[["age"]])
    assert open_native(column).decide(NUMBERS).shape == (ROWS,)


def test_a_margin_becomes_one_column_per_class():
    model = LinearSVC().fit(NUMBERS, GOOD)
    opened = open_native(model)
    assert opened.score_kind == "margin"
    margin = model.decision_function(NUMBERS)
    np.testing.assert_array_equal(opened.score(NUMBERS), np.column_stack((-margin, margin)))


def test_margins_of_pairs_of_classes_are_left_out():
    model = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")).fit(NUMBERS, np.arange(ROWS) % 4)
    opened = open_native(model, rows=NUMBERS)
    assert opened.score is None
    assert "one-vs-one" in opened.notes[0]


def test_hard_voting_has_labels_only():
    model = VotingClassifier([("a", GaussianNB())]).fit(NUMBERS, GOOD)
    opened = open_native(model)
    assert (opened.score, opened.score_kind) == (None, "none")


@pytest.mark.parametrize("table", [NUMBERS, NUMBERS.to_numpy()], ids=["fitted on a table", "fitted on an array"])
def test_no_warning_about_feature_names(table):
    opened = open_native(make_pipeline(StandardScaler(), LogisticRegression()).fit(table, GOOD), rows=NUMBERS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened.decide(NUMBERS)
        opened.score(NUMBERS)


def test_columns_are_put_into_the_models_order():
    model = LogisticRegression(max_iter=1000).fit(NUMBERS, GOOD)
    opened = open_native(model)
    np.testing.assert_array_equal(opened.decide(NUMBERS[["income", "age"]].assign(more=1)), model.predict(NUMBERS))


def test_many_threads_get_the_same_answers():
    opened = open_native(make_pipeline(mixed(), RandomForestClassifier(10)).fit(TABLE, GOOD))
    expected = opened.score(TABLE)
    with ThreadPoolExecutor(4) as pool:
        for scores in pool.map(opened.score, [TABLE] * 12):
            np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize(
    ("model", "fact"),
    [
        (DecisionTreeClassifier(), "not fitted"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "not fitted"),
        (IsolationForest(n_estimators=2).fit(NUMBERS), "outlier detector"),
        (KMeans(2, n_init=1).fit(NUMBERS), "neither a classifier nor a regressor"),
        (StandardScaler().fit(NUMBERS), "neither a classifier nor a regressor"),
        (MultiOutputClassifier(GaussianNB()).fit(NUMBERS, np.c_[GOOD, GOOD]), "several outputs"),
        (DecisionTreeRegressor().fit(NUMBERS, np.c_[VALUE, VALUE]), "several outputs"),
        (LinearRegression().fit(NUMBERS, np.c_[VALUE, VALUE]), "values per row"),
    ],
)
def test_what_cannot_be_explained_is_refused(model, fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(model, rows=NUMBERS)
    assert caught.value.path == "model"
    assert caught.value.fix


@pytest.mark.parametrize(("output", "fits"), [("label", True), ("score", True), ("value", False), ("labels", False)])
def test_output_of_a_classifier(output, fits):
    model = DecisionTreeClassifier(max_depth=2).fit(NUMBERS, GOOD)
    if fits:
        assert (open_native(model, output=output).score is None) == (output == "label")
    else:
        with pytest.raises(InputError, match="output: "):
            open_native(model, output=output)


def test_rows_the_model_cannot_take_are_an_error_when_opening():
    model = LogisticRegression().fit(NUMBERS, GOOD)
    with pytest.raises(InputError, match=r"data: lacks the columns \['income'\]"):
        open_native(model, rows=NUMBERS[["age"]])
    on_array = LogisticRegression().fit(NUMBERS.to_numpy(), GOOD)
    with pytest.raises(InputError, match="data: the model cannot answer these rows"):
        open_native(on_array, rows=TABLE[["age", "job"]])


def test_unknown_kinds_of_models_are_refused():
    with pytest.raises(InputError, match="dict is not a kind of model"):
        open_native({})


class TestTrustedTypes:
    def test_only_what_the_model_needs_is_written(self, tmp_path):
        model = make_pipeline(mixed(), RandomForestClassifier(2)).fit(TABLE, GOOD)
        flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["scikit-learn"])
        conf = mlflow.models.Model.load(str(tmp_path / "m")).flavors["sklearn"]
        assert conf["serialization_format"] == "skops"
        assert conf["skops_trusted_types"] == ["numpy.dtype", "sklearn.tree._tree.Tree"]

    def test_the_table_holds_plain_names_and_no_modules_that_run_commands(self):
        assert sum(map(len, TRUSTED_TYPES.values())) == len(ALL_TRUSTED)
        assert all(name.replace(".", "").replace("_", "").isalnum() for name in ALL_TRUSTED)
        assert not {"os", "posix", "subprocess", "builtins", "operator", "sys"} & {n.split(".")[0] for n in ALL_TRUSTED}

    def test_an_unknown_type_names_the_call_that_trusts_it_and_writes_nothing(self, tmp_path):
        search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=ShuffleSplit(2, random_state=0))
        model = search.fit(NUMBERS, GOOD)
        with pytest.raises(InputError) as caught:
            flavor.save(model, tmp_path / "m", signature=None, pip_requirements=[])
        assert "sklearn.model_selection._split.ShuffleSplit" in caught.value.fact
        assert not (tmp_path / "m").exists()
        call = caught.value.fix.split(" with ")[1].split(" and pass")[0]
        assert call.startswith("mlflow.sklearn.log_model(model, name='model', skops_trusted_types=[")
        types = call.split("skops_trusted_types=")[1].rstrip(")").strip("[]").replace("'", "").split(", ")
        info = mlflow.sklearn.log_model(
            model, name="model", skops_trusted_types=types, pip_requirements=["scikit-learn"]
        )
        folder = mlflow.artifacts.download_artifacts(info.model_uri)
        np.testing.assert_array_equal(open_folder(Path(folder)).decide(NUMBERS), model.predict(NUMBERS))

    def test_splines_are_restored(self, tmp_path):
        model = make_pipeline(SplineTransformer(), LogisticRegression()).fit(NUMBERS, GOOD)
        flavor.save(model, tmp_path / "m", signature=None, pip_requirements=["scikit-learn"])
        np.testing.assert_array_equal(open_folder(tmp_path / "m").decide(NUMBERS), model.predict(NUMBERS))

    def test_what_skops_cannot_write_names_cloudpickle(self, tmp_path):
        model = make_pipeline(FunctionTransformer(lambda x: x), LogisticRegression()).fit(NUMBERS, GOOD)
        with pytest.raises(InputError, match="serialization_format='cloudpickle'"):
            flavor.save(model, tmp_path / "m", signature=None, pip_requirements=[])
        assert not (tmp_path / "m").exists()


def test_a_pipeline_says_which_of_its_columns_are_missing() -> None:
    data = pd.DataFrame({"town": ["Ulm", "Bern"] * 20, "age": range(40)})
    columns = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(data, data["age"] > 20)
    with pytest.raises(InputError, match=r"lacks the columns .*town"):
        open_native(model, rows=data[["age"]])
