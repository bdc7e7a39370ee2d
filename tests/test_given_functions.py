"""Causal functions that somebody has already: tables, formulas, networks and fitted regressors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.artifact.format import files
from mlflow_cf.causal.function import structural_functions
from mlflow_cf.constraints import CausalEquation, Constraints
from mlflow_cf.constraints.model import Network
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace

RNG = np.random.default_rng(0)
AMOUNT = RNG.integers(5, 80, 200) * 100.0
DATA = pd.DataFrame(
    {
        "amount": AMOUNT,
        "duration": np.clip((10 + 0.004 * AMOUNT + RNG.normal(0, 2, 200)).round(), 4, 60).astype(int),
        "job": RNG.choice(["none", "some", "top"], 200),
        "owner": RNG.random(200) < 0.5,
        "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 300, 200), "D"),
        "rate": RNG.random(200),
    }
)
TWO = DATA[["amount", "duration"]]
MODEL = DecisionTreeClassifier(max_depth=4, random_state=0).fit(TWO, (TWO["amount"] < 3000) & (TWO["duration"] < 20))
POOR = pd.DataFrame({"amount": [5000.0], "duration": [22]})

POINTS = [[0, 10], [1000, 14], [5000, 22]]
TABLE = {"child": "duration", "parents": ["amount"], "coefficients": {"amount": POINTS}}
FORMULA = {"child": "duration", "parents": ["amount"], "formula": "10 + 0.004 * max(x.amount, 1000)"}
LAYERS = {"weights": [[[0.003, -0.0005]], [[1.0], [2.0]]], "biases": [[0.0, 4.0], [10.0]]}
NETWORK = {"child": "duration", "parents": ["amount"], "network": LAYERS}


def function_of(equation: Any, frame: pd.DataFrame = DATA) -> Any:
    space = FeatureSpace.infer(frame)
    (function,) = structural_functions(Constraints.read({"causal": [equation]}), space, space.encode(frame))
    return lambda rows: function.values(space.encode(rows))


class TestGiven:
    def test_a_table_has_straight_lines_and_stays_at_its_ends(self) -> None:
        values = function_of(TABLE)(DATA[:6].assign(amount=[-500.0, 0.0, 500.0, 1000.0, 4000.0, 9000.0]))
        assert values.tolist() == pytest.approx([10, 10, 12, 14, 20, 22])

    def test_points_of_dates_and_levels_beside_them(self) -> None:
        points = [["2024-01-01", 0.0], ["2024-01-11", 5.0]]
        equation = {"child": "rate", "parents": ["since", "job"], "coefficients": {"since": points, "job": {"top": 1}}}
        rows = DATA[:2].assign(since=pd.Timestamp("2024-01-05"), job=["top", "none"])
        assert function_of(equation)(rows).tolist() == pytest.approx([3, 2])

    def test_a_formula_is_plaf(self) -> None:
        equation = {**FORMULA, "parents": ["amount", "owner"], "formula": "abs(x.amount - 2000) / 100 - 3 * x.owner"}
        rows = DATA[:2].assign(amount=1500.0, owner=[True, False])
        assert function_of(equation)(rows).tolist() == [2, 5]

    def test_a_network_takes_levels_by_name(self) -> None:
        layers = {**LAYERS, "weights": [[[1.0, 0.0], [0.0, -3.0], [0.002, 0.0]], LAYERS["weights"][1]]}
        inputs = [["job", "top"], "owner", "amount"]
        equation = {**NETWORK, "parents": ["amount", "job", "owner"], "network": {**layers, "inputs": inputs}}
        rows = DATA[:3].assign(amount=1000.0, job=["top", "none", "top"], owner=[True, True, False])
        assert function_of(equation)(rows).tolist() == pytest.approx([10 + 3 + 2, 10 + 2 + 2, 10 + 3 + 8])

    def test_missing_parents_count_as_usual(self) -> None:
        frame = DATA.assign(amount=DATA["amount"].mask(DATA.index < 3))
        usual = frame.assign(amount=frame["amount"].fillna(frame["amount"].median()))
        for equation in (TABLE, FORMULA, NETWORK):
            values = function_of(equation, frame)
            assert values(frame[:4]).tolist() == values(usual[:4]).tolist()

    def test_of_a_missing_rank_the_lower_of_two_medians_counts(self) -> None:
        """By coefficients and by a network alike."""
        grades = {"grade": {"kind": "ordinal", "levels": ["low", "high"]}}
        space = FeatureSpace.infer(pd.DataFrame({"n": [1.0, 2, 3], "grade": ["low", "high", None]}), grades)
        rows = pd.DataFrame({"n": [1.0, 1.0, 1.0], "grade": [None, "low", "high"]})
        layers = {"weights": [[[5.0]]], "biases": [[0.0]], "inputs": [["grade", "high"]]}
        for function in ({"coefficients": {"grade": {"high": 5.0}}}, {"network": layers}):
            constraints = Constraints.read({"causal": [{"child": "n", "parents": ["grade"], **function}]})
            (found,) = structural_functions(constraints, space, space.encode(rows))
            assert found.values(space.encode(rows)).tolist() == [0, 0, 5]

    @pytest.mark.parametrize("equation", [TABLE, FORMULA, NETWORK], ids=["table", "formula", "network"])
    def test_written_in_every_way(self, equation: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "c.json").write_text(json.dumps({"causal": [equation]}))
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({"causal": [equation]}))
        plain = Constraints.read({"causal": [equation]})
        assert Constraints.read(tmp_path / "c.json") == Constraints.read(tmp_path / "c.yaml") == plain
        assert Constraints.read(plain.to_dict()) == plain
        given = dict(equation)
        arrays = {key: list(map(np.array, layers)) for key, layers in LAYERS.items()}
        if "network" in given:
            assert Constraints.read({"causal": [{**given, "network": arrays}]}) == plain
        if "network" in given:
            given["network"] = Network(**arrays)
        assert Constraints(causal=(CausalEquation(**given),)) == plain


@pytest.fixture(scope="module")
def wrapped() -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(MODEL, TWO, target=True)


class TestEverywhere:
    @pytest.mark.parametrize("equation", [TABLE, FORMULA, NETWORK], ids=["table", "formula", "network"])
    def test_a_request_may_give_it_and_every_explainer_keeps_it(
        self, wrapped: mlflow_cf.ExplainedModel, equation: dict[str, Any]
    ) -> None:
        values = function_of(equation, TWO)
        distances = []
        for explainer in ("geco", "exact", CEOCL(engine="milp")):
            (answer,) = wrapped.explain(POOR, explainer=explainer, constraints={"causal": [equation]}, time_limit_s=60)
            row = pd.DataFrame([answer.counterfactuals[0].row])
            assert row["duration"][0] == pytest.approx(22 + (values(row) - values(POOR))[0], abs=0.5)
            distances.append(answer.counterfactuals[0].distance)
        assert distances[1] == pytest.approx(distances[2], abs=1e-6)
        assert distances[0] >= distances[1] - 1e-9
        reply = wrapped.predict(POOR, {"counterfactual": {"constraints": {"causal": [equation]}}})
        assert reply["status"].tolist() == ["found"]

    def test_what_is_told_of_them(self) -> None:
        explained = mlflow_cf.wrap(MODEL, TWO, target=True, constraints={"causal": [NETWORK]})
        text = str(explained.describe())
        assert "network 2-1" in text
        curved = {**FORMULA, "formula": "exp(x.amount / 10000)"}
        lines = mlflow_cf.wrap(MODEL, TWO, target=True, constraints={"causal": [curved]}).describe()["causal"]
        assert lines[0]["structure"] == "formula exp(x.amount / 10000) (with exp(): not piecewise linear)"
        assert mlflow_cf.wrap(MODEL, TWO, target=True, constraints={"causal": [TABLE]}).describe()["causal"][0] == {
            "child": "duration",
            "parents": ["amount"],
            "structure": "piecewise linear",
            "r2": None,
        }

    def test_nothing_follows_from_what_is_undefined(self, wrapped: mlflow_cf.ExplainedModel) -> None:
        undefined = {**FORMULA, "formula": "1000 / (x.amount - 5000)"}
        for explainer in ("exact", CEOCL(engine="milp")):
            (answer,) = wrapped.explain(POOR, explainer=explainer, constraints={"causal": [undefined]}, time_limit_s=60)
            assert answer.status == "infeasible"

    def test_a_child_may_be_a_parent_of_the_next(self) -> None:
        data = DATA[["amount", "duration", "rate"]]
        model = LogisticRegression(max_iter=1000).fit(data, data["amount"] < 3000)
        chain = [TABLE, {"child": "rate", "parents": ["duration"], "formula": "x.duration / 100"}]
        explained = mlflow_cf.wrap(model, data, target=True, constraints={"causal": chain}, values="continuous")
        row = pd.DataFrame({"amount": [4000.0], "duration": [30.0], "rate": [0.5]})
        (answer,) = explained.explain(row, explainer=CEOCL(engine="milp"), time_limit_s=60)
        found = answer.counterfactuals[0].row
        assert found["rate"] == pytest.approx(0.5 + (found["duration"] - 30) / 100, abs=2e-6)
        assert found["duration"] == pytest.approx(
            30 + np.interp(found["amount"], *zip(*POINTS, strict=True)) - 20, abs=0.5
        )


def test_the_nearest_along_a_table_of_any_numbers() -> None:
    """x + y <= 4 from (6, 6): y falls with x, by 1 down to 5 and by 3 below, so x is 4.25 and y 2.75 less."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(0, 10, 300), "y": rng.uniform(0, 10, 300), "z": rng.random(300)})
    data.loc[:1, ["x", "y"]] = [[0.0, 0.0], [10.0, 10.0]]
    model = LinearRegression().fit(data, data["x"] + data["y"])
    points = {"x": [[0, 0], [5, 15], [10, 20]]}
    causal = [{"child": "y", "parents": ["x"], "coefficients": points}]
    explained = mlflow_cf.wrap(
        model, data, target={"high": 7.0}, values="continuous", constraints={"causal": causal, "immutable": ["z"]}
    )
    row = pd.DataFrame({"x": [6.0], "y": [6.0], "z": [0.5]})
    (answer,) = explained.explain(row, explainer="ceocl", certify=True, time_limit_s=60)
    best = answer.counterfactuals[0]
    assert best.proof == "optimal"
    assert (best.row["x"], best.row["y"]) == (pytest.approx(4.25, abs=1e-3), pytest.approx(2.75, abs=1e-3))


NAMED = make_column_transformer((StandardScaler(), ["amount", "rate"]), (OneHotEncoder(), ["job"]))
BINNED = make_column_transformer((KBinsDiscretizer(4), ["amount"]), (OneHotEncoder(), ["job"]))
THREE, BOTH = ["job", "rate", "amount"], ["amount", "rate"]
FITTED: dict[str, tuple[list[str], Any]] = {
    "array": (["amount"], LinearRegression().fit(DATA[["amount"]].to_numpy(), DATA["duration"])),
    "forest": (BOTH, RandomForestRegressor(5, random_state=0).fit(DATA[BOTH], DATA["duration"])),
    "boosting": (BOTH[::-1], GradientBoostingRegressor(n_estimators=20).fit(DATA[BOTH], DATA["duration"])),
    "histograms": (BOTH, HistGradientBoostingRegressor(max_iter=20).fit(DATA[BOTH], DATA["duration"])),
    "network": (
        THREE,
        make_pipeline(NAMED, MLPRegressor(hidden_layer_sizes=(6, 5), solver="lbfgs", tol=10.0, random_state=0)).fit(
            DATA[THREE], DATA["duration"]
        ),
    ),
    "trees": (THREE, make_pipeline(NAMED, RandomForestRegressor(5, random_state=0)).fit(DATA[THREE], DATA["duration"])),
    "bins": (
        ["amount", "job"],
        make_pipeline(BINNED, LinearRegression()).fit(DATA[["amount", "job"]], DATA["duration"]),
    ),
}


class TestFitted:
    @pytest.mark.parametrize("kind", FITTED)
    def test_it_says_what_the_regressor_says_and_is_stored_as_arrays(self, kind: str, tmp_path: Path) -> None:
        parents, estimator = FITTED[kind]
        rows = DATA[["amount", "duration", "job", "rate"]]
        model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(rows[["amount"]], rows["amount"] < 3000)
        whole = make_pipeline(make_column_transformer(("passthrough", ["amount"])), model)
        whole.fit(rows, rows["amount"] < 3000)
        causal = [{"child": "duration", "parents": parents, "model": estimator}]
        mlflow_cf.save_model(whole, tmp_path / "m", rows, target=True, constraints={"causal": causal})
        loaded = mlflow_cf.load_model(tmp_path / "m")
        seen = rows[sorted(parents, key=BOTH.index) if parents[::-1] == BOTH else parents]
        own = estimator.predict(seen.to_numpy() if kind == "array" else seen)
        function = loaded.bound_policy.functions[0]
        np.testing.assert_allclose(function.values(loaded.space.encode(rows)), own, rtol=1e-9)
        (fact,) = loaded.describe()["causal"]
        assert fact["r2"] == pytest.approx(
            1 - ((rows["duration"] - own) ** 2).sum() / rows["duration"].var(ddof=0) / 200
        )
        assert (tmp_path / "m" / files.CAUSAL_ARRAYS).exists()
        (told,) = loaded.policy.to_dict()["constraints"]["causal"]
        assert set(told["model"]) == {"stored"}
        with pytest.raises(InputError, match=r"causal\[0\].model: names a function that another model stores"):
            mlflow_cf.wrap(whole, rows, target=True, constraints=loaded.policy.to_dict()["constraints"])

    def test_what_cannot_be_opened_is_refused(self) -> None:
        rows = DATA[["amount", "duration", "rate"]]
        near = KNeighborsRegressor().fit(rows[["amount"]], rows["duration"])
        labels = DecisionTreeClassifier(max_depth=2).fit(rows[["amount"]], rows["duration"] > 20)
        model = DecisionTreeClassifier(max_depth=3).fit(rows, rows["amount"] < 3000)
        for estimator, message in (
            (
                near,
                r"causal\[0\].model: KNeighborsRegressor cannot be opened \(the estimator KNeighborsRegressor\); give",
            ),
            (labels, r"causal\[0\].model: DecisionTreeClassifier predicts labels; pass a regressor"),
            (
                FITTED["forest"][1],
                r"model: data: lacks the columns \['rate'\] that the model was fitted on; list all that it reads",
            ),
            (LinearRegression(), r"causal\[0\].model: model: "),
            (LinearRegression, r"causal\[0\].model: input should be 'linear', 'tree' or 'mlp', got <class"),
            (len, r"causal\[0\].model: input should be 'linear', 'tree' or 'mlp', got <built-in"),
        ):
            causal = [{"child": "duration", "parents": ["amount"], "model": estimator}]
            with pytest.raises(InputError, match=message):
                mlflow_cf.wrap(model, rows, target=True, constraints={"causal": causal})

    def test_a_request_opens_none(self, wrapped: mlflow_cf.ExplainedModel) -> None:
        causal = [{"child": "duration", "parents": ["amount"], "model": FITTED["array"][1]}]
        with pytest.raises(InputError, match=r"causal\[0\].model: is opened when a model is logged only; give"):
            wrapped.explain(POOR, constraints={"causal": causal})

    @pytest.mark.parametrize("kind", ["forest", "trees", "network", "bins"])
    def test_arrays_that_are_no_function_are_refused(self, kind: str) -> None:
        parents, estimator = FITTED[kind]
        rows = DATA[["amount", "duration", "job", "rate"]]
        model = make_pipeline(make_column_transformer(("passthrough", ["amount"])), LogisticRegression())
        explained = mlflow_cf.wrap(
            model.fit(rows, rows["amount"] < 3000),
            rows,
            target=True,
            constraints={"causal": [{"child": "duration", "parents": parents, "model": estimator}]},
        )
        constraints, (arrays,) = explained.policy.constraints, explained.bound_policy.learned
        for name, array in arrays.items():
            others = [
                {key: kept for key, kept in arrays.items() if key != name} if name != "r2" else {**arrays, "a": array}
            ]
            if name != "r2" and array.size:
                others.append({**arrays, name: array[None] + np.nan if array.dtype.kind == "f" else array[None]})
                if array.ndim and len(array) > 1 and name != "sets":
                    others.append({**arrays, name: array[:-1]})
            if name in ("nodes", "roots", "shapes", "cut_sizes", "activation"):
                others.append({**arrays, name: np.full_like(array, 10_000)})
            for other in others:
                with pytest.raises(ValueError, match=r"arrays|inputs|tree|layers|nodes"):
                    structural_functions(constraints, explained.space, explained.bound_policy.background, [other])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**FORMULA, "formula": "0.004 * amount"}, r"causal\[0\].formula: line 1, column 9: did not expect 'amount'"),
    ({**FORMULA, "formula": "x_cf.amount"}, r"formula: speaks of x_cf.amount, which is not known yet; use x. alone"),
    ({**FORMULA, "formula": "x.amont"}, r"formula: 'amont' is not one of its parents; did you mean 'amount'"),
    ({**FORMULA, "formula": "3"}, r"formula: does not mention the parent 'amount'; leave it out of parents"),
    ({**FORMULA, "formula": "x.amount + 'top'"}, r"formula: 'top' is no number; calculate with numbers"),
    (
        {**FORMULA, "parents": ["job"], "formula": "2 * x.job"},
        r"formula: job is a category, and formulas calculate with numbers; give what each level adds as coefficients",
    ),
    ({**FORMULA, "formula": "sqrt(x.amount)"}, r"formula: line 1, column 1: did not expect 'sqrt'"),
    ({**FORMULA, "coefficients": {"amount": 1}}, r"causal\[0\]: has both coefficients and a formula; leave one"),
    ({**FORMULA, "intercept": 1}, r"causal\[0\].intercept: belongs to coefficients"),
    ({**TABLE, "coefficients": {"amount": [[0, 1], [0, 2]]}}, r"amount\[1\]\[0\]: 0 is not above the one before; sort"),
    ({**TABLE, "coefficients": {"amount": [["a", 1], [0, 2]]}}, r"amount\[0\]\[0\]: 'a' is no number"),
    (
        {**TABLE, "parents": ["since"], "coefficients": {"since": [["2024", 1], ["x", 2]]}},
        r"since\[\d\]\[0\]: '.*' is no date; write it as '2024-12-31'",
    ),
    ({**TABLE, "parents": ["job"], "coefficients": {"job": POINTS}}, r"job: is a table of points for a category; give"),
    ({**TABLE, "parents": ["owner"], "coefficients": {"owner": POINTS}}, r"owner: is a table of points for a boolean"),
    ({**NETWORK, "network": {**LAYERS, "biases": [[0, 4]]}}, r"network.biases: 2 layers of weights and 1 of biases"),
    (
        {**NETWORK, "network": {**LAYERS, "biases": [[0, 4, 1], [10]]}},
        r"network.weights\[0\]: 1 rows of 2 weights; give 1 \(its inputs\) of 3 \(its biases\)",
    ),
    (
        {**NETWORK, "network": {"weights": [[[1, 2]]], "biases": [[0, 4]]}},
        r"network.biases\[0\]: 2 outputs; the last layer has one",
    ),
    (
        {**NETWORK, "parents": ["job"]},
        r"network.inputs: job is a category, and no number; give inputs, with \['job', l",
    ),
    (
        {**NETWORK, "network": {**LAYERS, "inputs": [["amount", "top"]]}},
        r"inputs\[0\]: names a level, and amount has non",
    ),
    (
        {**NETWORK, "parents": ["job"], "network": {**LAYERS, "inputs": [["job", "topp"]]}},
        r"inputs\[0\]: 'topp' is not a level of job; did you mean 'top'",
    ),
    (
        {**NETWORK, "network": {**LAYERS, "inputs": ["amont"]}},
        r"inputs\[0\]: 'amont' is not one of its parents; did you",
    ),
    (
        {**NETWORK, "parents": ["amount", "rate"], "network": {**LAYERS, "inputs": ["amount"]}},
        r"network.inputs: does not read the parent 'rate'; leave it out of parents",
    ),
]


@pytest.mark.parametrize(("equation", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_what_does_not_fit_is_refused(equation: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mlflow_cf.wrap(MODEL_OF_ALL, DATA, target=True, constraints={"causal": [equation]})


MODEL_OF_ALL = make_pipeline(make_column_transformer(("passthrough", ["amount"])), LogisticRegression()).fit(
    DATA, DATA["amount"] < 3000
)


def test_requests_stay_small(wrapped: mlflow_cf.ExplainedModel) -> None:
    many = {**TABLE, "coefficients": {"amount": [[place, 1] for place in range(1001)]}}
    reply = {"counterfactual": {"constraints": {"causal": [many]}}}
    with pytest.raises(InputError, match=r"amount: 1,001 entries are more than the policy's 1,000"):
        wrapped.predict(POOR, reply)


@pytest.mark.parametrize("formula", ["10 * exp(0.1 * x.x)", "x.x * x.x / 5"])
def test_a_curve_of_any_numbers_is_followed_and_nothing_is_called_the_nearest(formula: str) -> None:
    """Programs have it nearly, answers exactly; a bound that is proved leaves out what bends."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(0, 10, 300), "y": rng.uniform(0, 40, 300), "z": rng.random(300)})
    model = LinearRegression().fit(data, data["x"] + data["y"])
    constraints = {"causal": [{"child": "y", "parents": ["x"], "formula": formula}], "immutable": ["z"]}
    explained = mlflow_cf.wrap(model, data, target={"high": 24.0}, values="continuous", constraints=constraints)
    row = pd.DataFrame({"x": [6.0], "y": [26.0], "z": [0.5]})
    values = explained.bound_policy.functions[0].values
    line = np.linspace(data["x"].min(), 6.0, 20_001)
    rows = np.column_stack([line, np.zeros(len(line)), np.full(len(line), 0.5)])
    rows[:, 1] = 26.0 + values(rows) - values(rows[-1:])
    nearest = line[rows[:, 0] + rows[:, 1] <= 24.0].max()
    for explainer in ("ceocl", CEOCL(engine="milp")):
        (answer,) = explained.explain(row, explainer=explainer, certify=True, time_limit_s=60)
        best = answer.counterfactuals[0]
        assert best.row["x"] == pytest.approx(nearest, abs=0.02)
        assert best.proof == "bounded"
        assert best.bound < best.distance
        told = {"10 * exp(0.1 * x.x)": "exp()", "x.x * x.x / 5": "a product of what may change"}[formula]
        assert f"leave out a causal function that is not piecewise linear ({told})" in answer.reason


def test_a_network_with_other_activations_is_verified_and_left_out_of_bounds() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(0, 10, 200), "y": rng.uniform(0, 10, 200), "z": rng.random(200)})
    network = MLPRegressor(hidden_layer_sizes=(3,), activation="tanh", solver="lbfgs", tol=1.0, random_state=0)
    causal = [{"child": "y", "parents": ["x"], "model": network.fit(data[["x"]], data["y"])}]
    model = LinearRegression().fit(data, data["x"] + 0 * data["y"])
    constraints = {"causal": causal, "immutable": ["z"]}
    explained = mlflow_cf.wrap(model, data, target={"high": 4.0}, values="continuous", constraints=constraints)
    row = pd.DataFrame({"x": [6.0], "y": [5.0], "z": [0.5]})
    (answer,) = explained.explain(row, explainer=CEOCL(engine="milp"), certify=True, time_limit_s=60)
    found = answer.counterfactuals[0].row
    shift = network.predict(pd.DataFrame({"x": [found["x"], 6.0]}))
    assert found["y"] == pytest.approx(5.0 + shift[0] - shift[1], abs=1e-5)
    assert answer.counterfactuals[0].bound <= answer.counterfactuals[0].distance
    assert "(a network with tanh between its layers)" in answer.reason
