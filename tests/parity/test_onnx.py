"""Graphs score as onnxruntime does, next to thresholds too, and open as the models that they were exported from."""

import numpy as np
import pandas as pd
import pytest
from agreement import near_cuts
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.structures import score_rows

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")
helper = onnx.helper

NAMES = ("one", "two", "three", "four")


def numbers(rows=500, seed=0):
    """Return rows of float32, as graphs take them."""
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, 4)).astype("float32"), columns=list(NAMES))


def goals(rows):
    value = rows["one"] + rows["two"] * rows["three"]
    return {
        "two": np.where(value > 0, "yes", "no"),
        "three": np.digitize(value, [-0.5, 0.5]),
        "value": value.to_numpy(dtype=float),
    }


def answers(graph, rows):
    """Return what onnxruntime answers: labels, or None, and scores or values."""
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    if len(inputs) == 1:
        feed = {inputs[0].name: rows.to_numpy(dtype=np.float32)}
    else:
        dtypes = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(string)": object}
        feed = {one.name: rows[[one.name]].to_numpy().astype(dtypes[one.type]) for one in inputs}
    *label, scores = session.run(None, feed)
    if isinstance(scores, list):
        scores = np.array([list(one.values()) for one in scores])
    return label[0] if label else None, scores.reshape(len(rows), -1).astype(float)


def agree(explained, graph, rows, tolerance=1e-5):
    """Compare labels and scores of a structure with those of onnxruntime."""
    structure = explained.opened.structure
    assert structure is not None, explained.opened.note
    scores = score_rows(structure, explained.space.covering(rows).encode(rows))
    label, truth = answers(graph, rows)
    if label is not None:
        if truth.shape[1] == 1 and len(explained.model.classes) == 2:
            truth = np.column_stack([-truth, truth])
        near = np.abs(np.diff(np.sort(scores, axis=1)[:, -2:], axis=1)[:, 0]) < tolerance
        told = np.array(explained.model.classes)[scores.argmax(axis=1)]
        assert (told == label.ravel())[~near].all()
    assert np.abs((scores - truth) / np.maximum(1, np.abs(truth))).max() <= tolerance


def wrapped(graph, data, wanted, **options):
    target = mlflow_cf.Target(low=float(np.median(wanted))) if np.asarray(wanted).dtype.kind == "f" else wanted[0]
    return mlflow_cf.wrap(graph, data, target=target.item() if isinstance(target, np.generic) else target, **options)


MODELS = {
    "logistic": (LogisticRegression(), "two"),
    "logistic, three": (LogisticRegression(), "three"),
    "linear": (LinearRegression(), "value"),
    "margin": (LinearSVC(), "two"),
    "margins": (LinearSVC(), "three"),
    "ridge": (RidgeClassifier(), "two"),
    "stochastic": (SGDClassifier(loss="log_loss"), "two"),
    "network": (MLPClassifier((6, 4), max_iter=40, random_state=0), "two"),
    "network, three": (MLPClassifier((6,), activation="tanh", max_iter=40, random_state=0), "three"),
    "network, values": (MLPRegressor(hidden_layer_sizes=(6,), activation="logistic", random_state=0), "value"),
    "tree": (DecisionTreeClassifier(max_depth=4), "two"),
    "forest": (RandomForestClassifier(12, max_depth=5, random_state=0), "two"),
    "forest, three": (RandomForestClassifier(12, max_depth=5, random_state=0), "three"),
    "forest, values": (RandomForestRegressor(12, max_depth=5, random_state=0), "value"),
    "boosting": (GradientBoostingClassifier(n_estimators=12, random_state=0), "two"),
    "boosting, three": (GradientBoostingClassifier(n_estimators=12, random_state=0), "three"),
    "boosting, values": (GradientBoostingRegressor(n_estimators=12, random_state=0), "value"),
    "scaled": (make_pipeline(StandardScaler(), LogisticRegression()), "two"),
    "scaled forest": (make_pipeline(StandardScaler(), RandomForestClassifier(6, random_state=0)), "two"),
    "clipped": (make_pipeline(MinMaxScaler(clip=True), MLPClassifier((5,), max_iter=40, random_state=0)), "two"),
    "between": (make_pipeline(MinMaxScaler((-1, 1)), RandomForestClassifier(6, random_state=0)), "three"),
    "robust": (make_pipeline(RobustScaler(), LogisticRegression()), "three"),
    "largest": (make_pipeline(MaxAbsScaler(), DecisionTreeClassifier(max_depth=5)), "two"),
    "components": (make_pipeline(PCA(3), LogisticRegression()), "two"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("model", "goal"), MODELS.values(), ids=MODELS)
def test_models_of_scikit_learn(model, goal):
    rows = numbers()
    wanted = goals(rows)[goal]
    graph = skl2onnx.to_onnx(model.fit(rows.to_numpy(), wanted), rows.to_numpy()[:1])
    explained = wrapped(graph, rows, wanted)
    agree(explained, graph, numbers(seed=1))
    if explained.opened.structure.kind.endswith("leaves"):
        agree(explained, graph, near_cuts(explained, numbers(200, seed=2), NAMES))


def test_arrays_of_probabilities_are_read_as_dictionaries_are():
    rows = numbers()
    model = MODELS["forest, three"][0].fit(rows.to_numpy(), goals(rows)["three"])
    mapped, array = (
        skl2onnx.to_onnx(model, rows.to_numpy()[:1], options={"zipmap": zipmap}) for zipmap in (True, False)
    )
    one, other = (wrapped(graph, rows, goals(rows)["three"]) for graph in (mapped, array))
    assert one.model.classes == other.model.classes == (0, 1, 2)
    np.testing.assert_array_equal(one.model.score(rows), other.model.score(rows))


def applicants(rows=500, seed=0):
    rng = np.random.default_rng(seed)
    income = rng.normal(40, 12, rows)
    return pd.DataFrame(
        {
            "income": np.where(rng.random(rows) < 0.1, np.nan, income).astype("float32"),
            "debt": rng.gamma(2, 5, rows).astype("float32"),
            "age": rng.integers(18, 80, rows),
            "housing": np.array(["rent", "own", "free"])[rng.integers(0, 3, rows)],
            "code": rng.integers(0, 5, rows),
        }
    )


def merit(rows):
    return rows["income"].fillna(30) - rows["debt"] + 9 * (rows["housing"] == "own") + 5 * (rows["code"] == 3)


PREPARED = {
    "one hot": make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income", "debt"]),
        (StandardScaler(), ["age"]),
        (OneHotEncoder(handle_unknown="ignore"), ["housing"]),
        (OneHotEncoder(), ["code"]),
    ),
    "ordinal": make_column_transformer(
        (SimpleImputer(strategy="constant", fill_value=-1), ["income", "debt"]),
        (OrdinalEncoder(), ["housing"]),
        ("passthrough", ["age"]),
    ),
}
LAST = {
    "forest": RandomForestClassifier(10, max_depth=5, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=10, random_state=0),
    "linear": LogisticRegression(max_iter=5000),
    "network": MLPClassifier((8,), solver="lbfgs", max_iter=60, random_state=0),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prepare", PREPARED)
@pytest.mark.parametrize("last", LAST)
def test_pipelines_with_one_input_per_column(prepare, last):
    rows = applicants()
    wanted = (merit(rows) > 30).map({True: "yes", False: "no"}).to_numpy()
    model = make_pipeline(PREPARED[prepare], LAST[last]).fit(rows, wanted)
    graph = skl2onnx.to_onnx(model, rows[:1])
    explained = wrapped(graph, rows, wanted)
    assert explained.model.columns == tuple(rows.columns)
    agree(explained, graph, applicants(seed=1).assign(code=np.arange(500) % 5))


def test_levels_that_an_encoder_does_not_know():
    rows = applicants()
    wanted = (merit(rows) > 30).map({True: "yes", False: "no"}).to_numpy()
    graph = skl2onnx.to_onnx(make_pipeline(PREPARED["one hot"], LAST["forest"]).fit(rows, wanted), rows[:1])
    agree(wrapped(graph, rows, wanted), graph, rows.assign(housing=np.resize(["rent", "castle"], len(rows))))


class TestBoosting:
    """XGBoost and LightGBM, exported by onnxmltools."""

    tools = pytest.importorskip("onnxmltools")
    kinds = pytest.importorskip("onnxmltools.convert.common.data_types")

    def exported(self, model):
        convert = self.tools.convert_xgboost if "xgboost" in type(model).__module__ else self.tools.convert_lightgbm
        return convert(model, initial_types=[("X", self.kinds.FloatTensorType([None, 4]))], target_opset=15)

    @pytest.mark.parametrize("goal", ["two", "three", "value"])
    def test_xgboost_and_its_graph_are_the_same_structure_and_have_the_same_certified_answers(self, goal):
        library = pytest.importorskip("xgboost")
        rows = numbers()
        rows.loc[::9, "two"] = np.nan
        wanted = goals(rows.fillna({"two": 0.3}))[goal]
        wanted = (wanted == "yes").astype(int) if goal == "two" else wanted
        kind = library.XGBRegressor if goal == "value" else library.XGBClassifier
        model = kind(n_estimators=15, max_depth=3, n_jobs=1).fit(rows, wanted)
        graph = self.exported(library_without_names(model))
        own, other = wrapped(model, rows, wanted), wrapped(graph, rows, wanted)
        agree(other, graph, near_cuts(other, numbers(200, seed=2), NAMES))
        assert own.opened.structure.kind == other.opened.structure.kind
        for one, two in zip(own.opened.structure.lookups, other.opened.structure.lookups, strict=True):
            np.testing.assert_array_equal(one.cuts, two.cuts)
        some = numbers(12, seed=3)
        mine, theirs = (explained.explain(some, certify=True) for explained in (own, other))
        assert [one.status for one in mine] == [one.status for one in theirs]
        for one, two in zip(mine, theirs, strict=True):
            assert [(a.row, a.proof) for a in one.counterfactuals] == [(b.row, b.proof) for b in two.counterfactuals]
        assert sum(a.proof == "optimal" for one in theirs for a in one.counterfactuals) > 3

    @pytest.mark.parametrize("goal", ["two", "three", "value"])
    def test_lightgbm(self, goal):
        library = pytest.importorskip("lightgbm")
        rows = numbers()
        wanted = goals(rows)[goal]
        wanted = (wanted == "yes").astype(int) if goal == "two" else wanted
        kind = library.LGBMRegressor if goal == "value" else library.LGBMClassifier
        model = kind(n_estimators=15, num_leaves=7, n_jobs=1, verbose=-1).fit(rows.to_numpy(), wanted)
        graph = self.exported(model)
        explained = wrapped(graph, rows, wanted)
        agree(explained, graph, numbers(seed=1))
        agree(explained, graph, near_cuts(explained, numbers(200, seed=2), NAMES))


def library_without_names(model):
    """Return a model of XGBoost with its columns called f0, f1, ..., as onnxmltools wants them."""
    model.get_booster().feature_names = None
    return model


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_network_of_scikit_learn_and_its_graph_are_the_same_structure_and_have_the_same_certified_answers():
    rows = numbers(300)
    wanted = goals(rows)["two"]
    model = MLPClassifier((100, 100), max_iter=30, random_state=0).fit(rows, wanted)
    graph = skl2onnx.to_onnx(model, rows.to_numpy()[:1])
    own, other = (mlflow_cf.wrap(one, rows, target="yes") for one in (model, graph))
    mine, theirs = own.opened.structure, other.opened.structure
    assert (mine.kind, mine.activation, mine.link) == (theirs.kind, theirs.activation, theirs.link)
    for one, two in zip((mine.first.table, *mine.weights), (theirs.first.table, *theirs.weights), strict=True):
        np.testing.assert_array_equal(one.astype(np.float32), two)
    some = numbers(12, seed=3)
    some = some[own.model.decide(some) == "no"]
    found, same = (explained.explain(some, certify=True, time_limit_s=20) for explained in (own, other))
    for one, two in zip(found, same, strict=True):
        assert one.status == two.status == "found"
        assert [(a.row, a.proof) for a in one.counterfactuals] == [(b.row, b.proof) for b in two.counterfactuals]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, about its older exporter
@pytest.mark.parametrize("fixed", [False, True])
def test_a_network_of_pytorch_its_graph_and_that_of_scikit_learn_have_the_same_certified_answers(fixed, tmp_path):
    torch = pytest.importorskip("torch")
    rows = numbers(300)
    wanted = (goals(rows)["two"] == "yes").astype(int)
    model = MLPClassifier((100, 100), max_iter=30, random_state=0).fit(rows, wanted)
    layers = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layer = torch.nn.Linear(*weights.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weights.T))
            layer.bias.copy_(torch.from_numpy(bias))
        layers += [layer, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1], torch.nn.Sigmoid()).eval()
    axes = {} if fixed else {"x": {0: "n"}, "y": {0: "n"}}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(network, (torch.zeros(1, 4),), str(tmp_path / "g.onnx"), dynamo=False, **names)
    models = (model, network, onnx.load(str(tmp_path / "g.onnx")))
    kinds = [mlflow_cf.wrap(one, rows, target=1) for one in models]
    assert {one.opened.structure.kind for one in kinds} == {"network 100-100-1"}
    some = rows[model.predict(rows) == 0].head(8)
    found = [one.explain(some, certify=True, time_limit_s=20) for one in kinds]
    answers_of = [[[(a.row, a.proof) for a in one.counterfactuals] for one in each] for each in found]
    assert answers_of[0] == answers_of[1] == answers_of[2]
    assert {proof for one in answers_of[0] for _, proof in one} == {"optimal"}


# graphs as other libraries write them


def graph_of(nodes, constants, outputs, width=4, dtype=onnx.TensorProto.FLOAT):
    """Return a graph with the input X, whose last node computes Y (n, outputs)."""
    inputs = [helper.make_tensor_value_info("X", dtype, ["n", width])]
    result = [helper.make_tensor_value_info("Y", dtype, ["n", outputs])]
    kept = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, result, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def options_of(kind, rng, width):
    """Return the constants and attributes of an operator that takes so many numbers."""
    match kind:
        case "Gemm":
            wider = int(rng.integers(1, 6))
            return [rng.normal(size=(wider, width)), rng.normal(size=wider)], {"transB": 1}
        case "MatMul":
            return [rng.normal(size=(width, int(rng.integers(1, 6))))], {}
        case "Add" | "Sub" | "Mul" | "Div":
            return [rng.normal(size=(1, width)) + 3 * rng.choice([-1, 1], (1, width))], {}
        case "BatchNormalization":
            return [*rng.normal(size=(3, width)), rng.uniform(0.5, 2, width)], {"epsilon": 1e-3}
        case "last":
            return [rng.normal(size=(width, 2)), rng.normal(size=2)], {"alpha": 0.5, "beta": 2.0}
    constants = {"Clip": [-0.5, 2.0], "PRelu": [rng.normal(0, 0.3, width)]}
    attributes = {"LeakyRelu": {"alpha": 0.2}, "HardSigmoid": {"alpha": 0.25, "beta": 0.4}}
    return constants.get(kind, []), attributes.get(kind, {})


def drawn_chain(rng, kinds):
    """Return a graph of these layers, from four numbers to two, as PyTorch exports a chain of them."""
    nodes, constants, width = [], {}, 4
    for place, kind in enumerate([*kinds, "last"]):
        given, attributes = options_of(kind, rng, width)
        names = [f"c{place}_{number}" for number in range(len(given))]
        constants |= {name: np.asarray(one, dtype=np.float32) for name, one in zip(names, given, strict=True)}
        before, after = f"t{place - 1}" if place else "X", f"t{place}" if place < len(kinds) else "Y"
        nodes.append(helper.make_node("Gemm" if kind == "last" else kind, [before, *names], [after], **attributes))
        if kind in ("Gemm", "MatMul"):
            width = given[0].shape[0 if attributes.get("transB") else 1]
    return graph_of(nodes, constants, 2)


LINES = ["Gemm", "MatMul", "Add", "Sub", "Mul", "Div", "BatchNormalization", "Neg", "Identity", "Dropout", "Flatten"]
SHARP = st.lists(st.sampled_from([*LINES, "Relu", "LeakyRelu", "PRelu", "Clip", "HardSigmoid"]), max_size=7)
SMOOTH = st.lists(st.sampled_from([*LINES, "Sigmoid", "Tanh"]), max_size=7)


@dear(2)
@given(kinds=SHARP | SMOOTH, seed=st.integers(0, 2**32 - 1))
def test_every_chain_of_layers_scores_as_onnxruntime_does(kinds, seed):
    graph = drawn_chain(np.random.default_rng(seed), kinds)
    explained = mlflow_cf.wrap(graph, numbers(60), target=1, output="score")
    if explained.opened.structure is None:  # sums of float32 numbers of very different sizes
        assert "scores differ" in explained.opened.note or "label" in explained.opened.note
    else:
        agree(explained, graph, numbers(60, seed=1), 1e-4)


class Trees:
    """Random trees as the attributes of an operator; their nodes are numbered and listed in no order, the root first.

    Attributes:
        nodes: (tree, number, comparison, column, threshold, where true, where false, whether missing values go there).
        leaves: (tree, number).
    """

    def __init__(self, rng, modes):
        self.rng, self.modes, self.nodes, self.leaves = rng, modes, [], []
        for tree in range(int(rng.integers(1, 5))):
            grown = self.grown(4)
            number = rng.permutation(len(grown)).tolist()
            listed = [len(grown) - 1, *rng.permutation(len(grown) - 1).tolist()]  # the root is grown last
            for place in listed:
                mode, column, threshold, true, false, missing = grown[place]
                self.nodes.append((tree, number[place], mode, column, threshold, number[true], number[false], missing))
            self.leaves += [(tree, number[place]) for place in listed if grown[place][0] == "LEAF"]

    def grown(self, depth, first=0):
        """Return the nodes of a tree, whose places begin with `first`, each after its children."""
        rng = self.rng
        if not depth or rng.random() < 0.25:
            return [("LEAF", 0, 0.0, 0, 0, 0)]
        true = self.grown(depth - 1, first)
        false = self.grown(depth - 1, first + len(true))
        threshold = float(np.float32(rng.choice([-0.5, 0.0, 0.5, rng.normal()])))
        children = first + len(true) - 1, first + len(true) + len(false) - 1
        split = (str(rng.choice(self.modes)), int(rng.integers(4)), threshold, *children, int(rng.integers(2)))
        return [*true, *false, split]

    def attributes(self):
        tree, number, mode, column, threshold, true, false, missing = map(list, zip(*self.nodes, strict=True))
        return {
            "nodes_treeids": tree,
            "nodes_nodeids": number,
            "nodes_modes": mode,
            "nodes_featureids": column,
            "nodes_values": threshold,
            "nodes_truenodeids": true,
            "nodes_falsenodeids": false,
            "nodes_missing_value_tracks_true": missing,
        }

    def weights(self, kind, outputs, low=-1.0, some=0.7):
        """Return what leaves add: to one raw score, or to some of several."""
        named = self.rng.random((len(self.leaves), outputs)) < some
        named[:, 0] = True
        entries = [(*self.leaves[leaf], one) for leaf, one in np.argwhere(named).tolist()]
        tree, number, output = map(list, zip(*entries, strict=True))
        weights = self.rng.uniform(low, 1.0, len(entries)).astype(np.float32).tolist()
        names = (f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids", f"{kind}_weights")
        return dict(zip(names, (tree, number, output, weights), strict=True))


def edged(rng, rows=80):
    """Return rows with many values that are thresholds of drawn trees, or next to one, and missing ones."""
    near = np.array([-0.5, 0.0, 0.5], dtype=np.float32)
    values = np.concatenate([near, np.nextafter(near, np.float32(-9)), np.nextafter(near, np.float32(9)), [np.nan]])
    table = np.where(rng.random((rows, 4)) < 0.6, rng.choice(values, (rows, 4)), rng.normal(size=(rows, 4)))
    return pd.DataFrame(table.astype(np.float32), columns=list(NAMES))


ORDERS = st.lists(st.sampled_from(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"]), min_size=1, max_size=4)


@dear(2)
@given(modes=ORDERS, how=st.sampled_from(["SUM", "AVERAGE"]), base=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_trees_of_every_order_of_numbers_score_as_onnxruntime_does(modes, how, base, seed):
    rng = np.random.default_rng(seed)
    trees = Trees(rng, modes)
    attributes = {**trees.attributes(), **trees.weights("target", 1), "n_targets": 1, "aggregate_function": how}
    if base:
        attributes["base_values"] = [0.25]
    node = helper.make_node("TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", **attributes)
    graph = with_trees(graph_of([node], {}, 1))
    rows = edged(rng)
    explained = mlflow_cf.wrap(graph, rows, target=mlflow_cf.Target(low=0.0), output="value")
    agree(explained, graph, edged(rng))


def with_trees(graph, version=3):
    graph.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return graph


class Numbered(Trees):
    """The same for the operator that refers to nodes and leaves by their positions."""

    def __init__(self, rng, modes):
        self.rng, self.modes = rng, modes
        self.inner, self.tips, self.roots = [], [], []
        for _ in range(int(rng.integers(1, 5))):
            grown, first = self.grown(4), len(self.inner)
            inner = [place for place, node in enumerate(grown) if node[0] != "LEAF"]
            place = {node: first + number for number, node in enumerate(inner)}
            place |= {node: len(self.tips) + number for number, node in enumerate(set(range(len(grown))) - set(inner))}
            self.tips += [float(np.float32(rng.normal())) for _ in range(len(grown) - len(inner))]
            for node in inner:
                mode, column, threshold, true, false, missing = grown[node]
                tips = [int(grown[child][0] == "LEAF") for child in (true, false)]
                self.inner.append((mode, column, threshold, place[true], place[false], *tips, missing))
            if inner:
                self.roots.append(first + len(inner) - 1)
            else:  # a tree that is one leaf
                leaf = len(self.tips) - 1
                self.roots.append(first)
                self.inner.append(("BRANCH_LEQ", 0, 0.0, leaf, leaf, 1, 1, 0))

    def attributes(self):
        mode, column, threshold, true, false, true_leaf, false_leaf, missing = map(list, zip(*self.inner, strict=True))
        numbers = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3}
        tensors = {
            "nodes_modes": np.array([numbers[one] for one in mode], dtype=np.uint8),
            "nodes_splits": np.array(threshold, dtype=np.float32),
            "leaf_weights": np.array(self.tips, dtype=np.float32),
        }
        return {
            "tree_roots": self.roots,
            "nodes_featureids": column,
            "nodes_truenodeids": true,
            "nodes_falsenodeids": false,
            "nodes_trueleafs": true_leaf,
            "nodes_falseleafs": false_leaf,
            "nodes_missing_value_tracks_true": missing,
            "leaf_targetids": [0] * len(self.tips),
            "n_targets": 1,
            **{name: onnx.numpy_helper.from_array(one, name) for name, one in tensors.items()},
        }


@dear(2)
@given(modes=ORDERS, how=st.sampled_from([0, 1]), seed=st.integers(0, 2**32 - 1))
def test_trees_that_are_numbered_by_position_score_as_onnxruntime_does(modes, how, seed):
    rng = np.random.default_rng(seed)
    attributes = {"aggregate_function": how, **Numbered(rng, modes).attributes()}
    node = helper.make_node("TreeEnsemble", ["X"], ["Y"], domain="ai.onnx.ml", **attributes)
    graph = with_trees(graph_of([node], {}, 1), 5)
    explained = mlflow_cf.wrap(graph, edged(rng), target=mlflow_cf.Target(low=0.0), output="value")
    agree(explained, graph, edged(rng))


@dear(2)
@given(
    classes=st.integers(2, 4),
    transform=st.sampled_from(["NONE", "SOFTMAX", "LOGISTIC"]),
    alone=st.booleans(),
    low=st.sampled_from([-1.0, 0.05]),
    some=st.sampled_from([0.7, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_trees_that_vote_score_as_onnxruntime_does_or_are_not_opened(classes, transform, alone, low, some, seed):
    rng = np.random.default_rng(seed)
    trees = Trees(rng, ["BRANCH_LEQ"])
    weights = trees.weights("class", 1 if alone else classes, low, some)
    attributes = {**trees.attributes(), **weights, "classlabels_int64s": list(range(classes))}
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["L", "Y"], domain="ai.onnx.ml", post_transform=transform, **attributes
    )
    graph = with_trees(graph_of([node], {}, classes))
    graph.graph.output.insert(0, helper.make_tensor_value_info("L", onnx.TensorProto.INT64, ["n"]))
    rows = edged(rng)
    explained = mlflow_cf.wrap(graph, rows, target=classes - 1)
    if explained.opened.structure is not None:
        agree(explained, graph, edged(rng))
    else:
        signs = min(weights["class_weights"]) < 0
        usual = transform != "LOGISTIC" and some == 1 if classes > 2 else transform != "SOFTMAX" and signs
        assert not usual or alone == (classes > 2), explained.opened.note


@dear(2)
@given(
    classes=st.integers(2, 4),
    alone=st.booleans(),
    transform=st.sampled_from(["NONE", "SOFTMAX", "LOGISTIC"]),
    mirrored=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_classifiers_score_as_onnxruntime_does_or_are_not_opened(classes, alone, transform, mirrored, seed):
    rng = np.random.default_rng(seed)
    scores = 1 if alone and classes == 2 else classes
    weights, bias = rng.normal(size=(scores, 4)), rng.normal(0, 0.3, scores)
    if mirrored and scores == 2:
        weights, bias = np.array([-weights[1], weights[1]]), np.array([-bias[1], bias[1]])
    node = helper.make_node(
        "LinearClassifier",
        ["X"],
        ["L", "Y"],
        domain="ai.onnx.ml",
        coefficients=weights.ravel().tolist(),
        intercepts=bias.tolist(),
        classlabels_ints=list(range(classes)),
        post_transform=transform,
    )
    graph = with_trees(graph_of([node], {}, classes))
    graph.graph.output.insert(0, helper.make_tensor_value_info("L", onnx.TensorProto.INT64, ["n"]))
    explained = mlflow_cf.wrap(graph, numbers(120, seed % 100), target=classes - 1)
    if explained.opened.structure is not None:
        agree(explained, graph, numbers(120, seed % 100 + 1))
    else:
        assert alone or transform == "LOGISTIC", explained.opened.note


PREPARING = [
    "Scaler",
    "Imputer",
    "Binarizer",
    "Clip",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Neg",
    "ArrayFeatureExtractor",
    "Cast",
]


def prepared(rng, kinds):
    """Return nodes and constants that prepare the columns of X, and the name of what they make of them."""
    nodes, constants, last, domain = [], {}, "X", "ai.onnx.ml"
    for place, kind in enumerate(kinds):
        given, options = [], {}
        drawn = (rng.normal(size=4) + 2 * rng.choice([-1, 1, 1, 1], 4)).astype(np.float32)
        if kind == "Scaler":
            options = {"offset": rng.normal(size=4).tolist(), "scale": drawn.tolist()}
        elif kind == "Imputer":
            options = {"imputed_value_floats": drawn.tolist(), "replaced_value_float": float("nan")}
        elif kind == "Binarizer":
            options = {"threshold": float(np.float32(rng.normal(0, 0.5)))}
        elif kind == "Cast":
            options = {"to": onnx.TensorProto.FLOAT}
        elif kind == "Clip":
            given = [np.float32(-0.7), np.float32(1.3)]
        elif kind == "ArrayFeatureExtractor":
            given = [rng.integers(0, 4, 4)]
        elif kind != "Neg":
            given = [drawn]
        names = [f"p{place}_{number}" for number in range(len(given))]
        constants |= dict(zip(names, map(np.asarray, given), strict=True))
        where = domain if kind in ("Scaler", "Imputer", "Binarizer", "ArrayFeatureExtractor") else ""
        nodes.append(helper.make_node(kind, [last, *names], [f"p{place}"], domain=where, **options))
        last = f"p{place}"
    return nodes, constants, last


@dear(2)
@given(kinds=st.lists(st.sampled_from(PREPARING), max_size=5), trees=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_prepared_columns_score_as_onnxruntime_does(kinds, trees, seed):
    rng = np.random.default_rng(seed)
    nodes, constants, last = prepared(rng, kinds)
    if trees:
        drawn = Trees(rng, ["BRANCH_LEQ"])
        attributes = {**drawn.attributes(), **drawn.weights("target", 1), "n_targets": 1}
        final = helper.make_node("TreeEnsembleRegressor", [last], ["Y"], domain="ai.onnx.ml", **attributes)
    else:
        weights = rng.normal(size=4).tolist()
        final = helper.make_node("LinearRegressor", [last], ["Y"], domain="ai.onnx.ml", coefficients=weights)
    graph = with_trees(graph_of([*nodes, final], constants, 1))
    gaps = "Binarizer" not in kinds and (trees or "Imputer" in kinds)
    rows, others = (edged(rng) if gaps else edged(rng).fillna(0.25) for _ in range(2))
    explained = mlflow_cf.wrap(graph, rows, target=mlflow_cf.Target(low=0.0), output="value")
    if explained.opened.structure is not None:
        agree(explained, graph, others, 1e-4)
    else:
        reversing = {"Neg", "Mul", "Div", "Scaler"} & set(kinds)
        assert reversing or "differ" in explained.opened.note, explained.opened.note
