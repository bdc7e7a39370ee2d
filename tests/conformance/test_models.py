"""Our kinds of models pass the tests that `mlflow_cf.testing` has for everybody's."""

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor, StackingRegressor, VotingClassifier
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from mlflow_cf.testing import KINDS, Fitted, Kind, ModelSuite
from mlflow_cf.testing.goals import CUTS
from mlflow_cf.testing.models import words


class TestSklearn(ModelSuite):
    kind = KINDS["sklearn"]


def of_others(goal, rows, values):
    """Fit what is opened as one layer: components before a linear model, and a calibrated margin of components."""
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income", "hours", "rooms"]),
        (make_pipeline(OneHotEncoder(handle_unknown="ignore"), VarianceThreshold(0.05)), ["grade", "job", "member"]),
    )
    numbers = make_pipeline(prepare, PCA(7))
    if not goal.n_labels:
        model = make_pipeline(numbers, LinearRegression()).fit(rows, values)
        return Fitted(model, model.predict)
    margin = CalibratedClassifierCV(make_pipeline(numbers, LinearSVC()), ensemble=False, cv=3)
    model = margin.fit(rows, np.digitize(values, CUTS[2]))
    return Fitted(model, model.predict, (0, 1), model.predict_proba)


class TestMadeOfOthers(ModelSuite):
    kind = Kind(of_others, opened=True, n_labels=(0, 2))


def of_several_kinds(goal, rows, values):
    """Fit what is no sum: a vote of a linear model and trees, or a stack of both."""
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler(), SplineTransformer(4)), ["age", "income"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["hours", "rooms"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["grade", "job", "member"]),
    )
    plain = make_column_transformer(
        (SimpleImputer(), ["age", "income", "hours", "rooms"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["grade", "job", "member"]),
    )
    options = {"n_estimators": 5, "max_depth": 4, "random_state": 0}
    if not goal.n_labels:
        line = make_pipeline(prepare, Ridge())
        members = [
            ("line", TransformedTargetRegressor(line, func=np.sinh, inverse_func=np.arcsinh)),
            ("trees", make_pipeline(plain, RandomForestRegressor(**options))),
        ]
        model = StackingRegressor(members, Ridge(), cv=3).fit(rows, values)
        return Fitted(model, model.predict)
    labels = words(goal)
    members = [
        ("line", make_pipeline(prepare, LogisticRegression())),
        ("trees", make_pipeline(plain, RandomForestClassifier(**options))),
    ]
    model = VotingClassifier(members, voting="soft").fit(
        rows, np.array(labels)[np.digitize(values, CUTS[goal.n_labels])]
    )
    return Fitted(model, model.predict, labels, model.predict_proba)


class TestOfSeveralKinds(ModelSuite):
    kind = Kind(of_several_kinds, opened=True)


class TestXGBoost(ModelSuite):
    kind = KINDS["xgboost"]


class TestLightGBM(ModelSuite):
    kind = KINDS["lightgbm"]


TREES = {"iterations": 12, "depth": 3, "learning_rate": 0.4, "thread_count": 1, "logging_level": "Silent"}


def of_catboost(goal, rows, values):
    """Fit a model with categories: of the plain class where boosting libraries train a Booster."""
    library = pytest.importorskip("catboost")
    options = {**TREES, "one_hot_max_size": 9, "allow_writing_files": False, "cat_features": ["grade", "job", "member"]}
    if not goal.n_labels:
        model = library.CatBoostRegressor(**options).fit(rows, values)
        return Fitted(model, model.predict)
    labels, loss = words(goal), {"loss_function": "Logloss" if goal.n_labels == 2 else "MultiClass"}
    model = library.CatBoost({**options, **loss}) if goal.booster else library.CatBoostClassifier(**options)
    model.fit(rows, np.array(labels)[np.digitize(values, CUTS[goal.n_labels])])

    def decide(rows):
        return model.predict(rows, prediction_type="Class").reshape(-1)

    return Fitted(model, decide, labels, lambda rows: model.predict(rows, prediction_type="Probability"))


class TestCatBoost(ModelSuite):
    kind = Kind(of_catboost, plain=True, opened=True, gaps=False)


def of_explainable_boosting(goal, rows, values):
    """Fit an additive model with terms of one feature and, but for three labels, of two."""
    glassbox = pytest.importorskip("interpret.glassbox")
    options = {"outer_bags": 2, "max_rounds": 60, "n_jobs": 1, "max_bins": 16, "random_state": 0}
    kind = glassbox.ExplainableBoostingClassifier if goal.n_labels else glassbox.ExplainableBoostingRegressor
    model = kind(interactions=0 if goal.n_labels == 3 else 3, **options)
    labels = words(goal)
    wanted = np.array(labels)[np.digitize(values, CUTS[goal.n_labels])] if labels else values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Missing values detected", UserWarning)
        model.fit(rows, wanted)
    return Fitted(model, model.predict, labels, model.predict_proba if labels else None)


class TestExplainableBoosting(ModelSuite):
    kind = Kind(of_explainable_boosting, plain=True, opened=True)


NUMBERS, TEXTS = ["income", "hours", "rooms", "member"], ["grade", "job"]


def of_onnx(goal, rows, values):
    """Export a pipeline as a graph with one input per column, and ask onnxruntime for its answers."""
    convert = pytest.importorskip("skl2onnx").to_onnx
    types = pytest.importorskip("skl2onnx.common.data_types")
    runtime = pytest.importorskip("onnxruntime")
    prepare = make_column_transformer(
        (StandardScaler(), ["age"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore"), TEXTS),
    )
    labels = words(goal)
    final = {
        0: DecisionTreeRegressor(max_depth=6, random_state=0),
        2: MLPClassifier((6,), solver="lbfgs", max_iter=60, random_state=0),
        3: RandomForestClassifier(8, max_depth=5, random_state=0),
    }[goal.n_labels]
    table = rows.astype({"member": float, "rooms": "Float64", **dict.fromkeys(TEXTS, object)})
    table["rooms"] = table["rooms"].to_numpy(dtype=float, na_value=np.nan)
    model = make_pipeline(prepare, final)
    model.fit(table, np.array(labels)[np.digitize(values, CUTS[goal.n_labels])] if labels else values)
    kinds = dict.fromkeys(NUMBERS, types.FloatTensorType) | dict.fromkeys(TEXTS, types.StringTensorType)
    named = [(name, kinds.get(name, types.Int64TensorType)([None, 1])) for name in rows.columns]
    graph = convert(model, initial_types=named, options={"zipmap": goal.booster} if labels else {})
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])

    def ask(rows, place):
        dtypes = dict.fromkeys(NUMBERS, np.float32) | dict.fromkeys(TEXTS, object) | {"age": np.int64}
        pairs = [(name, rows[name].astype(object) if name in TEXTS else rows[name]) for name in rows.columns]
        feed = {name: column.to_numpy(dtype=dtypes[name], na_value=np.nan)[:, None] for name, column in pairs}
        answer = session.run(None, feed)[place]
        return (
            answer if isinstance(answer, np.ndarray) else np.array([[one[label] for label in labels] for one in answer])
        )

    if not labels:
        return Fitted(graph, lambda rows: ask(rows, 0)[:, 0].astype(float))
    return Fitted(graph, lambda rows: ask(rows, 0), labels, lambda rows: ask(rows, 1).astype(float))


class TestOnnx(ModelSuite):
    kind = Kind(of_onnx, plain=True, opened=True, gaps=False)


def of_pytorch(goal, rows, values):
    """Fit a network of drawn hidden units: its last layer by least squares, and then labels where the value is cut."""
    torch = pytest.importorskip("torch")
    nn, cuts = torch.nn, CUTS.get(goal.n_labels, ())
    numbers = np.nan_to_num(rows.to_numpy(dtype=np.float32, na_value=np.nan, copy=True), nan=2.0)
    rng = np.random.default_rng(0)
    mean, scale = numbers.mean(axis=0), numbers.std(axis=0)
    first, bias = rng.normal(size=(numbers.shape[1], 24)), rng.normal(size=24)
    below = 0.1 if goal.booster else 0.0
    units = (numbers - mean) / scale @ first + bias
    units = np.column_stack([np.where(units > 0, units, below * units), np.ones(len(rows))])
    last = np.linalg.lstsq(units, values, rcond=None)[0][:, None]
    steps = 6.0 * np.arange(len(cuts) + 1)[None]  # each label leads between its cuts
    if len(cuts) == 1:
        last = 6.0 * (last - np.array([*[0.0] * 24, cuts[0]])[:, None])
    elif cuts:
        last = last @ steps - np.vstack([np.zeros((24, 3)), 6.0 * np.cumsum([0.0, *cuts])])

    class Filled(nn.Sequential):
        def forward(self, x):
            return super().forward((torch.nan_to_num(x, nan=2.0) - torch.from_numpy(mean)) / torch.from_numpy(scale))

    layers = [nn.Linear(*first.shape), nn.LeakyReLU(below) if below else nn.ReLU(), nn.Linear(*last[:-1].shape)]
    with torch.no_grad():
        for layer, weights, shift in ((layers[0], first, bias), (layers[2], last[:-1], last[-1])):
            layer.weight.copy_(torch.from_numpy(weights.T))
            layer.bias.copy_(torch.from_numpy(shift))
    end = {0: [], 2: [nn.Sigmoid()], 3: [nn.Softmax(dim=1)]}[goal.n_labels]
    network = Filled(*layers, *end).eval()

    def ask(rows):
        with torch.no_grad():
            return (
                network(torch.from_numpy(rows.to_numpy(dtype=np.float32, na_value=np.nan, copy=True)))
                .numpy()
                .astype(float)
            )

    if not goal.n_labels:
        return Fitted(network, lambda rows: ask(rows)[:, 0], output="value")

    def chances(rows):
        answers = ask(rows)
        return np.column_stack([1 - answers, answers]) if answers.shape[1] == 1 else answers

    return Fitted(network, lambda rows: chances(rows).argmax(axis=1), tuple(range(goal.n_labels)), chances)


@pytest.mark.torch
class TestPyTorch(ModelSuite):
    kind = Kind(of_pytorch, opened=True, numbers=True, close=2e-5)


class TestPyfunc(ModelSuite):
    kind = KINDS["pyfunc"]


class TestFunction(ModelSuite):
    kind = KINDS["function"]
