"""Labels and scores that are asked for once are those that are asked for apart, ties included."""

import warnings
from dataclasses import replace

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from interpret.glassbox import ExplainableBoostingClassifier
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from mlflow_cf.features import CodedTable, FeatureSpace
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import Judge
from mlflow_cf_flavors.answers import ClearScore, LargestScore
from mlflow_cf_flavors.sklearn import calls as sklearn_calls

FEW = {"n_estimators": 4, "random_state": 0}
MODELS = [
    DecisionTreeClassifier(max_depth=2),
    ExtraTreeClassifier(max_depth=2, random_state=0),
    RandomForestClassifier(**FEW),
    ExtraTreesClassifier(**FEW),
    BaggingClassifier(**FEW),
    AdaBoostClassifier(**FEW),
    CalibratedClassifierCV(GaussianNB(), cv=2),
    VotingClassifier([("tree", DecisionTreeClassifier(max_depth=2)), ("bayes", GaussianNB())], voting="soft"),
    HistGradientBoostingClassifier(max_iter=4),
    GradientBoostingClassifier(**FEW),
    LogisticRegression(),
    LogisticRegressionCV(l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"),
    MLPClassifier((4,), max_iter=20, random_state=0),
    KNeighborsClassifier(2),
    BernoulliNB(),
    CategoricalNB(min_categories=9),
    ComplementNB(),
    GaussianNB(),
    MultinomialNB(),
    LinearSVC(),
    RidgeClassifier(),
    SGDClassifier(loss="log_loss", random_state=0),
    xgboost.XGBClassifier(n_estimators=4, n_jobs=1),
    lightgbm.LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1),
    catboost.CatBoostClassifier(iterations=4, thread_count=1, verbose=False, allow_writing_files=False),
    ExplainableBoostingClassifier(interactions=0, max_rounds=20, n_jobs=1, outer_bags=2),
]
COUNTS = ("CategoricalNB", "ComplementNB", "MultinomialNB")  # they take none below 0
TIED = pd.DataFrame({"x": [0.0, 0.0, 1.0, 1.0] * 20, "y": [0.0, 0.0, 0.0, 0.0] * 20})
NEVER = [0, 1, 0, 1] * 20  # nothing tells them apart: every share is one half


def points(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.integers(0, 4, rows) * 1.0, "y": rng.normal(size=rows)})


def labels(rows, classes):
    return pd.cut(rows["x"] + rows["y"], classes, labels=False).to_numpy()


def check(model, rows):
    """Ask for both at once and apart."""
    opened = open_native(model, rows=rows)
    assert opened.both is not None
    for some in (rows, rows.iloc[:1], rows.iloc[:7]):
        found, scores = opened.both(some)
        assert found.tolist() == opened.decide(some).tolist() == np.ravel(model.predict(some)).tolist()
        np.testing.assert_array_equal(scores, opened.score(some))


def test_the_known_estimators_are_tried():
    assert {type(model).__name__ for model in MODELS} == sklearn_calls._LARGEST | sklearn_calls._CLEAR


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("piped", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_both_are_what_each_is(model, piped):
    counts = type(model).__name__ in COUNTS
    scaler = MinMaxScaler(clip=True) if counts else StandardScaler()
    whole = make_pipeline(scaler.set_output(transform="pandas"), model) if piped else model
    for classes in (2, 3):
        rows, asked = (points(seed=seed).abs().round() if counts else points(seed=seed) for seed in (0, 1))
        check(clone(whole).fit(rows, labels(rows, classes)), asked)
    if isinstance(model, AdaBoostClassifier):
        return  # it learns nothing where nothing tells rows apart, and says so
    wrapped = clone(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing to learn
        wrapped.fit(TIED, NEVER)
    last = wrapped[-1] if piped else wrapped
    if hasattr(last, "coefs_"):  # a network learns the last digits of what nothing tells apart
        for part in (*last.coefs_, *last.intercepts_):
            part[:] = 0
    check(wrapped, TIED)


def test_equal_shares_are_decided_by_the_model():
    model = GradientBoostingClassifier(**FEW).fit(TIED, NEVER)
    opened = open_native(model, rows=TIED)
    found, scores = opened.both(TIED)
    assert set(found.tolist()) == {1}  # the largest, first of equal ones, would be 0
    assert np.ptp(scores) == 0


def test_predict_is_not_asked_where_a_score_leads():
    class Asked(Exception):
        pass

    def refuse(_):
        raise Asked

    rows = points()
    opened = open_native(LogisticRegression().fit(rows, labels(rows, 2)), rows=rows)
    both = replace(opened.both, both=replace(opened.both.both, decide=refuse))
    judge = Judge(replace(opened, decide=refuse, both=both), argmax_decides=False)
    assert judge.verdict(rows).codes.tolist() == opened.decide(rows).tolist()


def test_others_decide_for_themselves():
    class Careful(DecisionTreeClassifier):
        def predict(self, X):
            return (self.predict_proba(X)[:, 1] > 0.9).astype(int)

    rows = points()
    for model in (Careful(max_depth=2), SVC()):
        model.fit(rows, labels(rows, 2))
        assert open_native(model, rows=rows).both is None
    piped = make_pipeline(StandardScaler(), Careful(max_depth=2)).fit(rows, labels(rows, 2))
    check(piped, rows)


C = {"C": [0.1, 1.0]}
WRAPPED = {
    "a search over a pipeline": GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2),
    "a search at the end": make_pipeline(StandardScaler(), GridSearchCV(LogisticRegression(), C, cv=2)),
    "a pipeline in a pipeline": make_pipeline(make_pipeline("passthrough", StandardScaler()), LogisticRegression()),
    "a pipeline at the end": make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), LogisticRegression())),
    "frozen": make_pipeline(StandardScaler(), FrozenEstimator(LogisticRegression().fit([[0, 0], [1, 1]], [0, 1]))),
    "a frozen search": FrozenEstimator(GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_what_stands_inside_answers(name, monkeypatch):
    rows, asked = points(), points(seed=1)
    model = WRAPPED[name]
    (model.estimator if type(model) is FrozenEstimator else model).fit(rows, labels(rows, 2))
    check(model, asked)
    known = FeatureSpace.infer(rows)
    judge, _ = Judge.learn(open_native(model, rows=rows), CodedTable(known, known.encode(rows)))
    expected = model.predict(asked).tolist()
    monkeypatch.setattr(Pipeline, "predict", lambda *_: pytest.fail("it was asked as a whole"))
    monkeypatch.setattr(Pipeline, "predict_proba", lambda *_: pytest.fail("it was asked as a whole"))
    assert judge.predict(CodedTable(known, known.encode(asked)))[0] == expected


def test_a_search_of_the_users_own_is_asked_itself():
    class Careful(GridSearchCV):
        def predict_proba(self, X):
            return super().predict_proba(X)[:, ::-1]

        def predict(self, X):
            return 1 - super().predict(X)

    rows = points()
    model = Careful(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2).fit(rows, labels(rows, 2))
    opened = open_native(model, rows=rows)
    np.testing.assert_array_equal(opened.decide(rows), model.predict(rows))
    np.testing.assert_array_equal(opened.score(rows), model.predict_proba(rows))


def test_the_second_of_equal_scores_where_one_half_is_enough():
    equal = np.array([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]])
    assert LargestScore(lambda _: equal, ("a", "b"))(None).tolist() == ["a", "a", "b"]
    assert LargestScore(lambda _: equal, ("a", "b"), second=True)(None).tolist() == ["b", "a", "b"]


def test_a_lead_within_rounding_is_no_lead():
    def both(scores):
        classes = ("a", "b", "c")[: len(scores)]
        return ClearScore(lambda _: np.array(["asked"]), lambda _: np.array([scores]), classes)(None)[0].tolist()

    assert both([0.4, 0.6]) == ["b"]
    assert both([0.5 + 1e-9, 0.5 - 1e-9]) == ["asked"]
    assert both([1e6, 1e6 - 0.5]) == ["asked"]
    assert both([np.nan, 1.0]) == ["asked"]
    assert both([0.2, 0.5, 0.3]) == ["b"]
    assert both([0.2, 0.4, 0.4]) == both([-1e6, 0.3, 0.7]) == ["asked"]
