"""ONNX: graphs are asked for what onnxruntime answers to the bit; what has no clear meaning is refused."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import mlflow
import numpy as np
import pandas as pd
import pytest
from boosting_rows import check_counterfactuals
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native
from mlflow_cf_flavors.onnx import graph as graphs

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
flavor = pytest.importorskip("mlflow_cf_flavors.onnx.flavor")
helper, FLOAT, INT64, STRING = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame(RNG.normal(size=(400, 3)).astype("float32"), columns=["age", "income", "debt"])
SCORE = (ROWS["income"] - ROWS["debt"] + 0.3 * ROWS["age"]).to_numpy()
GOOD = (SCORE > 0.2).astype(int)


def graph_of(nodes, outputs, constants=(), inputs=None):
    """Return a graph; `outputs` are (name, element type, shape)."""
    given = inputs or [("X", FLOAT, ["n", 3])]
    kept = [onnx.numpy_helper.from_array(value, name) for name, value in dict(constants).items()]
    infos = [[helper.make_tensor_value_info(*one) for one in some] for some in (given, outputs)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "g", *infos, kept), opset_imports=opsets, ir_version=9)


WEIGHTS = np.array([[0.3], [1.0], [-1.0]], dtype=np.float32)


def layer(last, *more, width=1, outputs=None):
    """Return a graph of one layer, then operators; the last one answers `last` (n, width)."""
    names = ["X", *(f"t{place}" for place in range(len(more))), last]
    nodes = [helper.make_node("Gemm", ["X", "W", "b"], [names[1]])]
    nodes += [helper.make_node(one, [names[place + 1]], [names[place + 2]]) for place, one in enumerate(more)]
    weights = np.hstack([(place + 1) * WEIGHTS for place in range(width)])
    constants = {"W": weights, "b": np.linspace(0, 0.1, width, dtype=np.float32)}
    return graph_of(nodes, outputs or [(last, FLOAT, ["n", width])], constants)


def exported(model, **options):
    convert = pytest.importorskip("skl2onnx").to_onnx
    return convert(model, ROWS.to_numpy()[:1], **options)


@pytest.fixture(scope="module")
def forest():
    return exported(RandomForestClassifier(8, max_depth=4, random_state=0).fit(ROWS.to_numpy(), GOOD))


def run(graph, rows, *names):
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(names or None, {"X": rows.to_numpy(dtype=np.float32)})


@pytest.mark.parametrize("zipmap", [True, False])
def test_labels_and_scores_are_those_of_the_runtime_before_and_after_saving(zipmap, tmp_path):
    words = np.where(GOOD, "good", "bad")
    graph = exported(LogisticRegression().fit(ROWS.to_numpy(), words), options={"zipmap": zipmap})
    opened = open_native(graph, rows=ROWS)
    assert (opened.flavor, opened.classes, opened.score_kind) == ("onnx", ("bad", "good"), "probability")
    labels, scores = run(graph, ROWS)
    scores = np.array([[one["bad"], one["good"]] for one in scores]) if zipmap else scores
    for labelled, scored in (opened.both(ROWS), (opened.decide(ROWS), opened.score(ROWS))):
        assert labelled.tolist() == labels.tolist()
        np.testing.assert_array_equal(scored, scores.astype(float))
    before = graph.SerializeToString()
    flavor.save(graph, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(graph))
    assert graph.SerializeToString() == before
    stored = open_folder(tmp_path / "m", rows=ROWS)
    np.testing.assert_array_equal(stored.score(ROWS), opened.score(ROWS))
    assert stored.decide(ROWS).tolist() == labels.tolist()


def test_values(tmp_path):
    graph = exported(LinearRegression().fit(ROWS.to_numpy(), SCORE))
    opened = open_native(graph, rows=ROWS)
    assert opened.regression
    np.testing.assert_array_equal(opened.decide(ROWS), run(graph, ROWS)[0][:, 0].astype(float))
    with pytest.raises(InputError, match="output: the graph answers no labels"):
        open_native(graph, rows=ROWS, output="label")


def test_labels_alone_if_that_is_wanted(forest):
    opened = open_native(forest, rows=ROWS, output="label")
    assert (opened.score, opened.score_kind, opened.both) == (None, "none", None)
    with pytest.raises(InputError, match="output: 'value' does not fit"):
        open_native(forest, rows=ROWS, output="value")


class TestNumbersWithoutLabels:
    """What they mean is not told by the graph, so it is told by the caller."""

    @pytest.mark.parametrize("graph", [layer("Y"), layer("Y", width=3), layer("Y", "Sigmoid", width=3)])
    def test_without_a_word_they_are_refused(self, graph):
        with pytest.raises(InputError, match=r"output: the graph answers numbers and no labels; .*output='score'"):
            open_native(graph, rows=ROWS)

    @pytest.mark.parametrize("output", ["score", None])
    def test_probabilities_of_the_second_class(self, output):
        explained = mlflow_cf.wrap(layer("Y", "Sigmoid"), ROWS, target=1, output=output)
        assert (explained.model.classes, explained.model.score_kind) == ((0, 1), "probability")
        assert explained.describe()["structure"].startswith("linear")
        likely = run(layer("Y", "Sigmoid"), ROWS)[0][:, 0]
        assert explained.model.decide(ROWS).tolist() == (likely >= 0.5).astype(int).tolist()

    def test_margins_of_the_second_class(self):
        explained = mlflow_cf.wrap(layer("Y"), ROWS, target=1, output="score")
        assert explained.model.score_kind == "margin"
        assert explained.describe()["structure"].startswith("linear")
        margin = run(layer("Y"), ROWS)[0][:, 0].astype(float)
        np.testing.assert_array_equal(explained.model.score(ROWS), np.column_stack([-margin, margin]))
        check_counterfactuals(explained, ROWS[margin < 0].head(5), lambda rows: run(layer("Y"), rows)[0][:, 0] > 0)

    @pytest.mark.parametrize(("more", "kind"), [(("Softmax",), "probability"), ((), "margin")])
    def test_a_score_for_each_class(self, more, kind):
        explained = mlflow_cf.wrap(layer("Y", *more, width=3), ROWS, target=2, output=None if more else "score")
        assert (explained.model.classes, explained.model.score_kind) == ((0, 1, 2), kind)
        assert explained.opened.structure is not None, explained.opened.note

    def test_values(self):
        explained = mlflow_cf.wrap(layer("Y"), ROWS, target=mlflow_cf.Target(low=1.0), output="value")
        assert explained.model.regression
        assert explained.describe()["structure"].startswith("linear")
        with pytest.raises(InputError, match="wrap one model per output"):
            open_native(layer("Y", width=2), rows=ROWS, output="value")

    def test_the_word_is_kept_in_the_artifact(self, tmp_path):
        mlflow_cf.save_model(layer("Y", "Sigmoid"), tmp_path / "m", ROWS, target=1, output="score")
        explained = mlflow_cf.load_model(tmp_path / "m")
        assert explained.model.score_kind == "probability"
        assert explained.opened.structure is not None, explained.opened.note


class TestRefused:
    """Graphs without one clear answer per row."""

    def fact(self, graph, rows=ROWS, path="model"):
        with pytest.raises(InputError) as caught:
            open_native(graph, rows=rows)
        assert caught.value.path == path
        assert caught.value.fix
        return str(caught.value)

    def test_several_outputs_of_numbers(self):
        nodes = [helper.make_node(one, ["X"], [one]) for one in ("Relu", "Tanh")]
        graph = graph_of(nodes, [("Relu", FLOAT, ["n", 3]), ("Tanh", FLOAT, ["n", 3])])
        assert "has several outputs of numbers (Relu, Tanh)" in self.fact(graph)

    def test_several_inputs_one_of_which_has_several_columns(self):
        inputs = [("X", FLOAT, ["n", 2]), ("Z", FLOAT, ["n", 1])]
        node = helper.make_node("Concat", ["X", "Z"], ["Y"], axis=1)
        graph = graph_of([node], [("Y", FLOAT, ["n", 3])], inputs=inputs)
        assert "'X' among them has 2 columns of a table; export it with one input" in self.fact(graph)

    def test_pictures(self):
        inputs = [("X", FLOAT, ["n", 3, 8, 8])]
        graph = graph_of([helper.make_node("Relu", ["X"], ["Y"])], [("Y", FLOAT, None)], inputs=inputs)
        assert "its input 'X' is tensor(float) of 4 axes" in self.fact(graph)

    def test_another_number_of_columns(self, forest):
        told = self.fact(forest, ROWS.assign(more=1.0), path="data")
        assert "has 4 columns where the input 'X' of the graph has 3" in told

    def test_columns_that_are_not_there(self):
        inputs = [(name, FLOAT, ["n", 1]) for name in ("age", "wealth")]
        node = helper.make_node("Concat", ["age", "wealth"], ["Y"], axis=1)
        graph = graph_of([node], [("Y", FLOAT, ["n", 2])], inputs=inputs)
        assert "lacks the columns ['wealth']" in self.fact(graph, path="data")

    def test_scores_that_are_fewer_than_labels(self):
        graph = layer("Y", width=2)
        graph.graph.node.extend([helper.make_node("ArgMax", ["Z"], ["L"], axis=1, keepdims=0)])
        graph.graph.node.extend([helper.make_node("Concat", ["Y", "X"], ["Z"], axis=1)])
        graph.graph.node.insert(1, graph.graph.node.pop())
        graph.graph.output.insert(0, helper.make_tensor_value_info("L", INT64, ["n"]))
        assert "scores" in self.fact(graph)

    def test_a_file_that_is_none(self, forest, tmp_path):
        flavor.save(forest, tmp_path / "m", signature=None, pip_requirements=["onnx"])
        file = tmp_path / "m" / "model.onnx"
        for damaged in (b"no graph", file.read_bytes()[:200], b""):
            file.write_bytes(damaged)
            with pytest.raises(InputError, match="onnxruntime cannot open it"):
                open_folder(tmp_path / "m", rows=ROWS)

    def test_an_operator_that_the_runtime_does_not_know(self):
        node = helper.make_node("Oracle", ["X"], ["Y"], domain="ai.onnx.ml")
        assert "onnxruntime cannot open it" in self.fact(graph_of([node], [("Y", FLOAT, ["n", 1])]))

    def test_no_rows(self, forest):
        with pytest.raises(InputError, match="data: rows are needed"):
            open_native(forest)


class TestScored:
    """Graphs that cannot be opened are scored by the runtime, and what stood in the way is told."""

    def reason(self, graph, rows=ROWS):
        explained = mlflow_cf.wrap(graph, rows, target=1, output="score")
        assert explained.opened.structure is None
        some = rows[explained.model.decide(rows) == 0].head(3)
        assert {one.status for one in explained.explain(some, max_evaluations=2000)} == {"found"}
        return explained.describe()["structure"]

    def test_unknown_operators(self):
        told = self.reason(layer("Y", "Softplus", "Log"))
        assert "the operator Softplus as this ONNX graph uses it" in told
        assert "can be opened" in told

    def test_half_precision(self):
        half = onnx.TensorProto.FLOAT16
        constants = {"W": WEIGHTS.astype(np.float16), "b": np.zeros(1, dtype=np.float16)}
        node = helper.make_node("Gemm", ["X", "W", "b"], ["Y"])
        graph = graph_of([node], [("Y", half, ["n", 1])], constants, inputs=[("X", half, ["n", 3])])
        assert "float16 numbers" in self.reason(graph)

    def test_large_graphs(self, monkeypatch):
        monkeypatch.setattr(graphs, "MOST_BYTES", 100)
        assert "of which no more than 0 MiB are read" in self.reason(layer("Y"))

    def test_large_weights_beside_the_file(self, monkeypatch, tmp_path):
        graph = exported(MLPClassifier((64, 64), solver="lbfgs", tol=1, random_state=0).fit(ROWS.to_numpy(), GOOD))
        for one in graph.graph.initializer:  # raw bytes are what is stored beside a graph
            if one.data_type == FLOAT:
                one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one), one.name))
        mlflow.onnx.save_model(graph, tmp_path / "m", pip_requirements=["onnx"])
        assert len(list((tmp_path / "m").iterdir())) > 5  # the weights lie beside the graph
        explained = mlflow_cf.wrap(tmp_path / "m", ROWS, target=1)
        assert explained.describe()["structure"].startswith("network 64-64-1")
        monkeypatch.setattr(graphs, "MOST_BYTES", 5000)

        def never(*_):
            raise AssertionError

        monkeypatch.setattr("onnx.external_data_helper.load_external_data_for_model", never)
        explained = mlflow_cf.wrap(tmp_path / "m", ROWS, target=1)
        assert "no more than 0 MiB are read" in explained.describe()["structure"]

    def test_outputs_that_nobody_reads(self):
        graph = layer("Y", "Dropout", "Sigmoid")
        graph.graph.node[1].output.append("mask")
        explained = mlflow_cf.wrap(graph, ROWS, target=1)
        assert explained.describe()["structure"].startswith("linear")

    def test_labels_on_the_way_to_scores(self):
        nodes = [
            helper.make_node("LinearClassifier", ["X"], ["L", "P"], domain="ai.onnx.ml", coefficients=[1.0, 0, 0] * 2,
                             intercepts=[-0.5, 0.5], classlabels_ints=[0, 1]),
            helper.make_node("Cast", ["L"], ["F"], to=FLOAT),
            helper.make_node("Softplus", ["F"], ["G"]),
            helper.make_node("Sub", ["G", "one"], ["Y"]),
        ]  # fmt: skip
        graph = graph_of(nodes, [("Y", FLOAT, ["n"])], {"one": np.float32(1.0)})
        explained = mlflow_cf.wrap(graph, ROWS, target=mlflow_cf.Target(low=0.1), output="value")
        assert "the operator " in explained.describe()["structure"]

    def test_weights_whose_length_is_not_stated(self, tmp_path):
        (tmp_path / "weights").write_bytes(b"0" * 6000)
        for stated in ([("location", "weights")], [("location", "weights"), ("length", "-1")]):
            tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
            for key, value in stated:
                tensor.external_data.add(key=key, value=value)
            assert graphs._size_of(tensor, tmp_path) == 6000

    def test_shapes_that_are_left_open(self):
        graph = layer("Y", "Sigmoid")
        for one in (*graph.graph.input, *graph.graph.output):
            one.type.tensor_type.ClearField("shape")
        explained = mlflow_cf.wrap(graph, ROWS, target=1, output="score")
        assert explained.opened.structure is not None, explained.opened.note

    @pytest.mark.parametrize("many", [1, 7])
    def test_a_fixed_number_of_rows(self, many):
        graph = layer("Y", "Sigmoid")
        graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value = many
        graph.graph.output[0].type.tensor_type.shape.dim[0].dim_value = many
        fixed, free = (open_native(one, rows=ROWS, output="score") for one in (graph, layer("Y", "Sigmoid")))
        for some in (ROWS.head(20), ROWS.head(1), ROWS.head(0)):
            np.testing.assert_allclose(fixed.score(some), free.score(some), atol=1e-6)
        assert mlflow_cf.wrap(graph, ROWS, target=1, output="score").opened.structure is not None

    def test_a_session_does_not_show_its_graph(self, forest, tmp_path):
        flavor.save(forest, tmp_path / "m", signature=None, pip_requirements=["onnx"])
        loaded = mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True)
        explained = mlflow_cf.wrap(loaded, ROWS, target=1)
        ours = open_native(forest, rows=ROWS).score(ROWS)
        np.testing.assert_allclose(explained.model.score(ROWS), ours, atol=1e-6)  # its threads add in another order
        assert any("does not show its graph" in note for note in explained.describe()["notes"])
        session = runtime.InferenceSession(forest.SerializeToString(), providers=["CPUExecutionProvider"])
        with pytest.raises(InputError, match="does not give its graph back; pass the graph"):
            mlflow_cf.save_model(session, tmp_path / "n", ROWS, target=1)


class TestTables:
    """How columns become tensors."""

    def texts(self):
        inputs = [("housing", STRING, ["n", 1]), ("rooms", INT64, ["n", 1])]
        nodes = [
            helper.make_node("LabelEncoder", ["housing"], ["code"], domain="ai.onnx.ml", keys_strings=["own", "rent"],
                             values_floats=[1.5, -1.0], default_float=-2.0),
            helper.make_node("Cast", ["rooms"], ["many"], to=FLOAT),
            helper.make_node("Concat", ["code", "many"], ["both"], axis=1),
            helper.make_node("MatMul", ["both", "W"], ["sum"]),
            helper.make_node("Sigmoid", ["sum"], ["Y"]),
        ]  # fmt: skip
        return graph_of(nodes, [("Y", FLOAT, ["n", 1])], {"W": np.array([[1.0], [-0.31]], np.float32)}, inputs)

    rows = pd.DataFrame(
        {"rooms": np.arange(60) % 7, "more": 1.0, "housing": np.resize(["own", "rent", "free"], 60)},
    )

    def test_columns_are_found_by_name(self):
        explained = mlflow_cf.wrap(self.texts(), self.rows, target=1, output="score")
        assert explained.model.columns == ("housing", "rooms")
        assert explained.describe()["structure"].startswith("linear")

    def test_a_row_with_a_missing_level_leaves_the_others_alone(self):
        explained = mlflow_cf.wrap(self.texts(), self.rows, target=1, output="score")
        some = self.rows[explained.model.decide(self.rows) == 0].head(3).reset_index(drop=True)
        answers = explained.explain(some.assign(housing=some["housing"].where(some.index != 0)))
        assert [one.status for one in answers] == ["invalid", "found", "found"]

    def test_whole_numbers_stay_whole(self):
        opened = open_native(self.texts(), rows=self.rows, output="score")
        floats = self.rows.astype({"rooms": float})
        np.testing.assert_array_equal(opened.score(floats), opened.score(self.rows))
        with pytest.raises(ValueError, match="rooms has fractions or missing values"):
            opened.score(floats + {"rooms": 0.5, "more": 0, "housing": ""})

    def test_text_is_no_number(self, forest):
        rows = ROWS.assign(age="old")
        with pytest.raises(InputError, match=r"data: the model cannot answer these rows .*age has no numbers"):
            open_native(forest, rows=rows)

    def test_a_logged_signature_names_the_columns(self, forest, tmp_path):
        signature = mlflow.models.infer_signature(ROWS, GOOD)
        flavor.save(forest, tmp_path / "m", signature=signature, pip_requirements=["onnx"])
        shuffled = ROWS[["debt", "age", "income"]].assign(more="x")
        opened = open_folder(tmp_path / "m", rows=shuffled)
        assert opened.columns == ("age", "income", "debt")
        np.testing.assert_array_equal(opened.score(shuffled), open_native(forest, rows=ROWS).score(ROWS))

    def test_session_options_of_mlflow(self, forest, tmp_path):
        options = {"graph_optimization_level": 0}
        mlflow.onnx.save_model(forest, tmp_path / "m", pip_requirements=["onnx"], onnx_session_options=options)
        assert flavor.load(tmp_path / "m").level == 0
        np.testing.assert_array_equal(
            open_folder(tmp_path / "m", rows=ROWS).score(ROWS), open_native(forest, rows=ROWS).score(ROWS)
        )


def test_threads_get_the_same_answers(forest):
    opened = open_native(forest, rows=ROWS)
    scores = opened.score(ROWS)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: opened.score(ROWS), range(24)):
            np.testing.assert_array_equal(got, scores)


def test_helper_processes_get_the_same_model(forest, tmp_path):
    flavor.save(forest, tmp_path / "m", signature=None, pip_requirements=["onnx"])
    for model in (forest, tmp_path / "m"):
        explained = mlflow_cf.wrap(model, ROWS, target=1)
        copied = cloudpickle.loads(cloudpickle.dumps(explained))
        np.testing.assert_array_equal(copied.model.score(ROWS), explained.model.score(ROWS))
        pd.testing.assert_frame_equal(copied.predict(ROWS.head(5)), explained.predict(ROWS.head(5)))


def test_whole_reply_and_artifact(forest, tmp_path):
    wrapped = mlflow_cf.wrap(forest, ROWS, target=1)
    rows = ROWS[wrapped.model.decide(ROWS) == 0].head(6)
    mlflow_cf.save_model(forest, tmp_path / "m", ROWS, target=1)
    loaded = mlflow_cf.load_model(tmp_path / "m")
    assert loaded.describe()["structure"] == wrapped.describe()["structure"]
    pd.testing.assert_frame_equal(wrapped.predict(rows), loaded.predict(rows))
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"), suppress_warnings=True)
    reply = served.predict(rows.astype(float), {"counterfactual": {"certify": True}})
    assert set(reply["status"]) == {"found"}
    needed = (tmp_path / "m" / "requirements.txt").read_text()
    assert f"onnx=={onnx.__version__}" in needed
    assert f"onnxruntime=={runtime.__version__}" in needed


def test_which_models_are_graphs(forest):
    assert flavor_of(forest) is flavor
    session = runtime.InferenceSession(forest.SerializeToString(), providers=["CPUExecutionProvider"])
    assert flavor_of(session) is flavor
    assert not flavor.accepts({})


@pytest.mark.system
def test_no_other_model_loads_onnx():
    code = (
        "import json, sys, pandas, sklearn.linear_model, mlflow_cf\n"
        "rows = pandas.DataFrame({'a': [0.0, 1.0, 2.0, 3.0], 'b': [1.0, 0.0, 1.0, 0.0]})\n"
        "model = sklearn.linear_model.LogisticRegression().fit(rows, [0, 0, 1, 1])\n"
        "mlflow_cf.wrap(model, rows, target=1).explain(rows)\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] in ('onnx', 'onnxruntime')]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []
