"""Adult, Credit and German with the papers' full constraint sets, rules included: no violation, nothing invalid.

Rules are decided by the interpreter of tests/properties, everything else by the independent checker. The public files
are not part of this project; without them these tests are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checker import Checker, Condition
from properties.interpreter import Table, program_of, rule_of
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.words.result import Explanation

TRAINING = 2_500  # rows, also of the background
REJECTED = 5
ESTIMATORS: Mapping[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "forest": lambda: RandomForestClassifier(10, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=15, random_state=0),
    "logistic": lambda: LogisticRegression(max_iter=2000),
}
LEFT_OUT = {"adult": ["fnlwgt"], "credit": [], "german": []}
# Beyond the files: what GeCo's paper adds for Adult (sections 3 and 6.2), and rules that link features everywhere.
MORE = {
    "adult": """
        GROUP education, education_num
        PLAF x_cf.hours_per_week <= 60
        PLAF IF x_cf.capital_gain > x.capital_gain THEN x_cf.capital_loss <= x.capital_loss
        PLAF IF x_cf.workclass != x.workclass && x_cf.workclass = 'Private' THEN x_cf.occupation != 'Farming-fishing'
    """,
    "credit": """
        GROUP TotalOverdueCounts, TotalMonthsOverdue, HasHistoryOfOverduePayments
        PLAF x_cf.MostRecentBillAmount <= x_cf.MaxBillAmountOverLast6Months
        PLAF x_cf.MostRecentPaymentAmount <= x_cf.MaxPaymentAmountOverLast6Months
        PLAF IF x_cf.MaxPaymentAmountOverLast6Months > 2 * x.MaxPaymentAmountOverLast6Months + 100 THEN 1 = 2
    """,
    "german": """
        PLAF IF x_cf.credit_amount > x.credit_amount THEN x_cf.duration >= x.duration
        PLAF x_cf.credit_amount / x_cf.duration <= 400 + x.credit_amount / x.duration
        PLAF IF x_cf.housing = 'own' and x.housing != 'own' THEN x_cf.age > x.age
    """,
}


@pytest.fixture(scope="module", params=list(MORE))
def case(request: pytest.FixtureRequest, data_file: Callable[[str], Path]) -> tuple[str, pd.DataFrame, pd.Series, Any]:
    """Return name, features, target and constraints of the file."""
    name = request.param
    table = pd.read_csv(data_file(f"{name}.csv")).drop(columns=LEFT_OUT[name]).sample(frac=1, random_state=0)
    constraints = yaml.safe_load(data_file(f"constraints/{name}.yaml").read_text(encoding="utf-8"))
    return name, table.iloc[:, :-1].reset_index(drop=True), table.iloc[:, -1].reset_index(drop=True), constraints


@pytest.fixture(scope="module", params=list(ESTIMATORS))
def model(request: pytest.FixtureRequest, case: Any) -> Pipeline:
    _, features, target, _ = case
    words = list(features.select_dtypes(exclude="number"))
    spread = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer((spread, words), remainder=StandardScaler())
    return make_pipeline(encode, ESTIMATORS[request.param]()).fit(features[:TRAINING], target[:TRAINING])


def conditions(texts: Sequence[str], background: pd.DataFrame) -> list[Condition]:
    levels = {name: sorted(background[name].unique()) for name in background.select_dtypes(exclude="number")}
    rules = [rule_of(text) for text in texts]
    return [lambda query, row, rule=rule: rule.holds(query, row, Table(levels)) for rule in rules]


def check(checker: Checker, rows: pd.DataFrame, found: Sequence[Explanation]) -> None:
    for x, answer in zip(rows.to_dict("records"), found, strict=True):
        assert answer.status == "found", answer.reason
        for counterfactual in answer.counterfactuals:
            assert checker.faults(x, counterfactual.row) == []


def rejected(case: Any, model: Pipeline) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the background and the first rows turned down, held out where there are any."""
    _, features, _, _ = case
    pool = features[TRAINING:] if len(features) > TRAINING else features
    pool = pool.head(1_000)
    return features[:TRAINING], pool[model.predict(pool) == 0].head(REJECTED).reset_index(drop=True)


def test_the_full_constraint_sets(case: Any, model: Pipeline) -> None:
    _, _, _, constraints = case
    background, rows = rejected(case, model)
    explained = mlflow_cf.wrap(model, background, target=1, constraints=constraints)
    rules = conditions(constraints.get("rules", ()), background)
    check(Checker(model.predict, background, [constraints], 1, rules=rules), rows, explained.explain(rows))


def test_more_rules_and_groups_in_a_request(case: Any, model: Pipeline) -> None:
    """The file is the policy; the request adds groups and rules that link features."""
    name, _, _, constraints = case
    background, rows = rejected(case, model)
    rows = rows.head(2)
    explained = mlflow_cf.wrap(model, background, target=1, constraints=constraints)
    groups, _ = program_of(MORE[name])
    request = mlflow_cf.Constraints.read(MORE[name])
    rules = conditions([*constraints.get("rules", ()), *request.rules], background)
    checker = Checker(model.predict, background, [constraints, {"groups": groups}], 1, rules=rules)
    for x, answer in zip(rows.to_dict("records"), explained.explain(rows, constraints=request, count=2), strict=True):
        assert answer.status in ("found", "not_found", "infeasible")
        for counterfactual in answer.counterfactuals:
            assert checker.faults(x, counterfactual.row) == []


@pytest.mark.parametrize("case", ["adult", "credit"], indirect=True)
def test_the_rules_bind(case: Any, model: Pipeline) -> None:
    """Without the file's rules, some answers would break them: else the tests above would show nothing."""
    _, _, _, constraints = case
    background, rows = rejected(case, model)
    free = {key: value for key, value in constraints.items() if key != "rules"}
    asked = {
        "adult": ["x_cf.education_num > x.education_num"],
        "credit": ["x_cf.EducationLevel > x.EducationLevel + 1"],
    }[case[0]]
    start = {"age": 20, "education_num": 9} if case[0] == "adult" else {"AgeGroup": 1, "EducationLevel": 1}
    young = rows.assign(**start)
    young = young[model.predict(young) == 0].reset_index(drop=True)
    rules = conditions(constraints["rules"], background)

    def obedient(constraints: Any) -> list[bool]:
        explained = mlflow_cf.wrap(model, background, target=1, constraints=constraints)
        return [
            all(rule(x, counterfactual.row) for rule in rules)
            for x, answer in zip(
                young.to_dict("records"), explained.explain(young, constraints={"rules": asked}), strict=True
            )
            for counterfactual in answer.counterfactuals
        ]

    assert not all(obedient(free))
    assert all(obedient(constraints))
