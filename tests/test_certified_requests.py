"""Certificates as users see them: in Python, over the pyfunc interface, as a policy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import InputError

RNG = np.random.default_rng(5)
DATA = pd.DataFrame(
    {
        "income": RNG.integers(20, 80, 400).astype("int64"),
        "debt": RNG.integers(0, 40, 400).astype("int64"),
        "housing": RNG.choice(["rent", "own", "free"], 400),
    }
)
GOOD = (DATA["income"] - DATA["debt"] + 8 * (DATA["housing"] == "own") > 35).astype(int)
TABLE = make_column_transformer((OneHotEncoder(), ["housing"]), remainder="passthrough")
FOREST = make_pipeline(TABLE, RandomForestClassifier(20, max_depth=5, random_state=0)).fit(DATA, GOOD)
LINEAR = make_pipeline(TABLE, LogisticRegression(max_iter=1000)).fit(DATA, GOOD)
WIDE = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 6)).round(1), columns=list("abcdef"))
WIDE_FOREST = RandomForestClassifier(12, max_depth=5, random_state=0).fit(
    WIDE, (WIDE.sum(axis=1) + WIDE["a"] * WIDE["b"] > 1).astype(int)
)
WIDE_REFUSED = WIDE[WIDE_FOREST.predict(WIDE) == 0][:8]
REFUSED = DATA[(FOREST.predict(DATA) == 0) & (LINEAR.predict(DATA) == 0)][:8]


def every_row(x):
    """All combinations of values of the background."""
    grid = [np.unique(DATA[name]) for name in DATA]
    table = pd.DataFrame([column.ravel() for column in np.meshgrid(*grid, indexing="ij")], index=DATA.columns).T
    table = table.astype({"income": "int64", "debt": "int64"})
    return table[(table != x).any(axis=1)]


def distance(table, x):
    spread = {name: np.ptp(DATA[name]) for name in ("income", "debt")}
    changes = [(table[name] - x[name]).abs() / spread[name] for name in spread]
    changes.append((table["housing"] != x["housing"]).astype(float))
    return sum(0.5 * (change != 0) / 3 + 0.5 * change / 3 for change in changes)


def test_tables_may_have_more_columns_than_arrays_have_axes():
    rng = np.random.default_rng(0)
    many = pd.DataFrame(rng.normal(size=(300, 80)).round(1)).rename(columns="x{}".format)
    good = (many["x3"] + many["x40"] + many["x70"] > 0).astype(int)
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(many, good)
    explained = mlflow_cf.wrap(model, many, target=1, distance=(0, 1, 0))
    refused = many[model.predict(many) == 0][:2]
    first = explained.explain(refused, certify=True)
    for one, several in zip(first, explained.explain(refused, count=4, certify=True), strict=True):
        assert [answer.proof for answer in several.counterfactuals] == ["optimal"] * 4
        assert several.counterfactuals[0].row == one.counterfactuals[0].row


@pytest.mark.parametrize("model", [FOREST, LINEAR], ids=["forest", "linear"])
def test_a_certified_answer_is_the_nearest_of_all_rows(model):
    explained = mlflow_cf.wrap(model, DATA)
    for position, answer in enumerate(explained.explain(REFUSED, certify=True)):
        x = REFUSED.iloc[position]
        table = every_row(x)
        (found,) = answer.counterfactuals
        assert found.proof == "optimal"
        assert found.bound == found.distance
        assert found.distance == pytest.approx(distance(table[model.predict(table) == 1], x).min())


def test_what_cannot_be_is_proved_infeasible():
    explained = mlflow_cf.wrap(FOREST, DATA, constraints={"immutable": ["income"], "decreasing": ["debt"]})
    answers = explained.explain(REFUSED, certify=True)
    assert {answer.status for answer in answers} <= {"found", "infeasible"}
    for position, answer in enumerate(answers):
        x = REFUSED.iloc[position]
        table = every_row(x)
        lawful = table[(table["income"] == x["income"]) & (table["debt"] <= x["debt"])]
        assert (answer.status == "found") == bool((FOREST.predict(lawful) == 1).any())


def test_without_certificate_only_what_few_changes_settle_is_claimed():
    """Three changes cost more than any answer here, or, by the mere size of changes, next to nothing."""
    told = [answer.counterfactuals[0] for answer in mlflow_cf.wrap(FOREST, DATA).explain(REFUSED)]
    assert [(found.proof, found.bound) for found in told] == [("optimal", found.distance) for found in told]
    proved = mlflow_cf.wrap(FOREST, DATA).explain(REFUSED, certify=True)
    assert [answer.counterfactuals[0].row for answer in proved] == [found.row for found in told]
    wide = mlflow_cf.wrap(WIDE_FOREST, WIDE, distance=(0, 1, 0)).explain(WIDE_REFUSED)
    assert ("none", None) in {(answer.counterfactuals[0].proof, answer.counterfactuals[0].bound) for answer in wide}
    (several,) = mlflow_cf.wrap(FOREST, DATA).explain(REFUSED[:1], count=2)
    assert {(found.proof, found.bound) for found in several.counterfactuals} == {("none", None)}


def test_a_request_may_ask_for_it():
    (record,) = (
        mlflow_cf.wrap(FOREST, DATA).predict(REFUSED[:1], {"counterfactual": {"certify": True}}).to_dict("records")
    )
    assert record["counterfactuals"][0]["proof"] == "optimal"


def test_a_policy_may_demand_it():
    explained = mlflow_cf.wrap(FOREST, DATA, certify=True)
    assert explained.explain(REFUSED[:1])[0].counterfactuals[0].proof == "optimal"
    (record,) = explained.predict(REFUSED[:1], {"counterfactual": {"certify": False}}).to_dict("records")
    assert record["counterfactuals"][0]["proof"] == "optimal"  # a request only adds


def test_a_policy_is_refused_where_nothing_can_be_proved():
    with pytest.raises(InputError, match="certify"):
        mlflow_cf.wrap(FOREST.predict, DATA, target=1, output="label", certify=True)


def test_a_model_that_cannot_be_opened_says_so():
    (answer,) = mlflow_cf.wrap(FOREST.predict, DATA, target=1, output="label").explain(REFUSED[:1], certify=True)
    assert answer.status == "found"
    assert answer.counterfactuals[0].proof == "none"
    assert answer.reason == (
        "not certified: the model could not be opened for this row (scored through the model itself)"
    )


def test_several_answers_are_proved_each():
    (answer,) = mlflow_cf.wrap(FOREST, DATA).explain(REFUSED[:1], count=3, explainer="exact")
    assert [found.proof for found in answer.counterfactuals] == ["optimal"] * 3
    sets = [frozenset(change.feature for change in found.changes) for found in answer.counterfactuals]
    assert len(set(sets)) == 3


def test_a_small_budget_gives_a_bound():
    explained = mlflow_cf.wrap(WIDE_FOREST, WIDE, distance=(0, 1, 0))
    best = explained.explain(WIDE_REFUSED, certify=True)
    cut = explained.explain(WIDE_REFUSED, certify=True, max_evaluations=600)
    for exact, answer in zip(best, cut, strict=True):
        assert answer.evaluations <= 600
        (nearest,), (found,) = exact.counterfactuals, answer.counterfactuals
        assert found.bound <= nearest.distance <= found.distance
        assert (found.proof == "optimal") == (found.bound == found.distance)
        assert answer.reason.endswith("with more evaluations there may be nearer ones") == (found.proof == "bounded")
    assert {answer.counterfactuals[0].proof for answer in cut} == {"optimal", "bounded"}


@pytest.mark.parametrize("dtype", ["str", "category"])
def test_a_level_that_only_the_model_knows(dtype):
    """The type of a categorical column says which levels there are; nothing can be proved of rows with another one."""
    background = DATA[DATA["housing"] != "own"].astype({"housing": dtype})
    explained = mlflow_cf.wrap(LINEAR, background, target=1)
    row = pd.DataFrame({"income": [30], "debt": [20], "housing": ["own"]})
    (answer,) = explained.explain(row)
    (found,) = answer.counterfactuals
    assert LINEAR.predict(pd.DataFrame([found.row]))[0] == 1
    (answer,) = explained.explain(row, certify=True)
    unproved = (
        "not certified: the model could not be opened for this row (the background has no level 'own' of housing)"
    )
    assert answer.reason == ("" if dtype == "str" else unproved)
    assert [each.proof for each in answer.counterfactuals] == ["optimal" if dtype == "str" else "none"]


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_numbers_between_those_of_the_background(stored):
    data = pd.DataFrame(RNG.normal(size=(300, 2)), columns=["income", "debt"]).astype(stored)
    tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(
        data, (data["income"] ** 2 > data["debt"]).astype(int)
    )
    rejected = data[tree.predict(data) == 0][:8]
    explained = mlflow_cf.wrap(tree, data, values="continuous", distance=(0, 1, 0))
    for position, answer in enumerate(explained.explain(rejected, certify=True)):
        x = rejected.iloc[position]
        (found,) = answer.counterfactuals
        assert found.proof == "optimal"
        rows = pd.DataFrame(
            [g.ravel() for g in np.meshgrid(*(sides(tree, data, x, name) for name in data))], data.columns
        ).T
        good = rows[tree.predict(rows.astype(stored)) == 1]
        best = sum((good[name] - float(x[name])).abs() / np.ptp(data[name].astype(float)) / 2 for name in data).min()
        assert found.distance == pytest.approx(best, abs=1e-6)


def sides(tree, data, x, name):
    """The row's own value, and those on both sides of every threshold."""
    column = data.columns.get_loc(name)
    at = tree.tree_.threshold[tree.tree_.feature == column].astype(np.float32)
    points = np.concatenate(
        [np.nextafter(at, np.float32(-np.inf)), at, np.nextafter(at, np.float32(np.inf)), [x[name]]]
    )
    return np.unique(points[(points >= data[name].min()) & (points <= data[name].max())])


def test_continuous_numbers_of_linear_models_are_certified_and_those_of_smooth_networks_are_not():
    data = DATA.assign(income=DATA["income"] + RNG.random(len(DATA)))
    row = data.loc[REFUSED.index[:1]]
    (answer,) = mlflow_cf.wrap(LINEAR, data, values="continuous").explain(row, certify=True)
    assert answer.counterfactuals[0].proof == "optimal"
    wanted = LINEAR.predict(data)
    encoder = make_column_transformer((OneHotEncoder(), ["housing"]), (StandardScaler(), ["income", "debt"]))
    smooth = make_pipeline(encoder, MLPClassifier((8,), activation="tanh", random_state=0, max_iter=2000))
    smooth.fit(data, wanted)
    row = data[smooth.predict(data) != 1].head(1)
    (answer,) = mlflow_cf.wrap(smooth, data, values="continuous", target=1).explain(row, certify=True)
    assert answer.counterfactuals[0].proof == "none"
    assert "numbers between" in answer.reason


def test_a_search_that_goes_on_for_long_leaves_evaluations_for_the_certificate():
    """Six changes are needed, and the neighbourhoods of one generation are as large as the default limit."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = pd.DataFrame(StandardScaler().fit_transform(X), columns=X.columns)
    model = LogisticRegression(max_iter=2000).fit(X, y)
    row = X[model.predict(X) == 0].sample(50, random_state=1).iloc[[41]]
    (found,) = mlflow_cf.wrap(model, X, target=1).explain(row, certify=True)[0].counterfactuals
    assert found.n_changed == 6
    assert found.proof == "optimal"
