"""Models opened through MLflow's generic interface: what their answers mean, and what cannot be told."""

import json
import subprocess
import sys

import mlflow
import mlflow.pyfunc
import mlflow.sklearn
import numpy as np
import pandas as pd
import pytest
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema, TensorSpec
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import MODULES, flavor_of, open_folder, open_native

ROWS = pd.DataFrame({"age": [20, 30, 40, 50], "income": [1.0, 2.0, 3.0, 4.0]})


def served(answer, schema=None):
    """Return a loaded pyfunc whose answers are `answer(table)`."""
    signature = None if schema is None else ModelSignature(inputs=schema)
    return mlflow.pyfunc.PyFuncModel(Model(signature=signature), _Bare(answer))


class _Bare:
    def __init__(self, answer):
        self.predict = answer


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        (lambda t: (t["age"] > 30).astype(int).to_numpy(), (0, 1)),
        (lambda t: (t["age"] > 30).to_numpy(), (False, True)),
        (lambda t: np.where(t["age"] > 30, "yes", "no"), ("no", "yes")),
        (lambda t: list(np.where(t["age"] > 30, "yes", "no")), ("no", "yes")),
        (lambda t: (t["age"] > 30).astype(int), (0, 1)),
        (lambda t: pd.Series(np.where(t["age"] > 30, "yes", "no")), ("no", "yes")),
        (lambda t: pd.DataFrame({"label": np.where(t["age"] > 30, "yes", "no")}), ("no", "yes")),
        (lambda t: (t["age"] > 30).astype(int).to_numpy().reshape(-1, 1), (0, 1)),
    ],
)
def test_labels_are_learned_from_rows(answer, labels):
    opened = open_native(served(answer), rows=ROWS)
    assert opened.classes == labels
    assert {type(label) for label in opened.classes} == {type(labels[0])}
    assert opened.score is None
    assert opened.notes
    assert opened.decide(ROWS).tolist() == [labels[0], labels[0], labels[1], labels[1]]


def test_numbers_can_be_declared_labels():
    opened = open_native(served(lambda t: (t["age"] > 30).astype(float)), output="label", rows=ROWS)
    assert opened.classes == (0.0, 1.0)


def test_one_score_is_the_probability_of_the_second_class():
    opened = open_native(served(lambda t: (t["age"] / 100).to_numpy()), output="score", rows=ROWS)
    assert opened.classes == (0, 1)
    assert opened.score_kind == "probability"
    np.testing.assert_allclose(opened.score(ROWS), [[0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.5, 0.5]])
    assert opened.decide(ROWS).tolist() == [0, 0, 0, 1]


def test_one_score_beyond_0_and_1_is_a_margin():
    opened = open_native(served(lambda t: (t["age"] - 30).to_numpy()), output="score", rows=ROWS)
    assert opened.score_kind == "margin"
    assert "the threshold is 0" in opened.notes[0]
    assert opened.score(ROWS).tolist() == [[10, -10], [0, 0], [-10, 10], [-20, 20]]
    assert opened.decide(ROWS).tolist() == [0, 1, 1, 1]


def test_several_scores_are_named_by_their_columns():
    table = served(lambda t: pd.DataFrame({"low": 1 - t["age"] / 100, "high": t["age"] / 100, "odd": 0.0 * t["age"]}))
    opened = open_native(table, output="score", rows=ROWS)
    assert opened.classes == ("low", "high", "odd")
    assert opened.decide(ROWS).tolist() == ["low", "low", "low", "low"]
    array = open_native(served(lambda t: np.eye(3)[t["age"].to_numpy() % 3]), output="score", rows=ROWS)
    assert array.classes == (0, 1, 2)
    assert array.decide(ROWS).tolist() == [2, 0, 1, 2]


def test_values():
    opened = open_native(served(lambda t: t["age"] * 2), output="value")
    assert opened.regression
    assert opened.decide(ROWS).tolist() == [40.0, 60.0, 80.0, 100.0]


@pytest.mark.parametrize(
    ("answer", "output", "path", "fact"),
    [
        (lambda t: t["income"] / 10, None, "output", "answers real numbers"),
        (lambda _: [0.5, 1, 1, 1], None, "output", "answers real numbers"),
        (lambda _: np.eye(4), None, "model", "answers shape"),
        (lambda _: pd.DataFrame(np.eye(4)), None, "model", "answers 4 columns"),
        (lambda _: np.array(["a", None, "a", "a"], dtype=object), None, "model", "missing values"),
        (lambda _: np.array([{}, {}, {}, {}], dtype=object), "label", "model", "which are no labels"),
        (lambda _: np.array(["a", "b", "a", "a"]), "score", "output", "does not answer numbers"),
        (lambda t: t["age"], "probability", "output", "'probability' is not known"),
    ],
)
def test_unclear_answers_are_refused(answer, output, path, fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(served(answer), output=output, rows=ROWS)
    assert caught.value.path == path
    assert caught.value.fix


def test_labels_need_rows():
    with pytest.raises(InputError, match="rows are needed"):
        open_native(served(lambda t: t["age"]))


def test_only_the_signatures_columns_go_in_and_in_its_types(caplog):
    seen = []

    def answer(table):
        seen.append(table)
        return (table["age"] > 30).to_numpy()

    schema = Schema([ColSpec("double", "age"), ColSpec("string", "city", required=False)])
    opened = open_native(served(answer, schema), rows=ROWS)
    assert opened.columns == ("age", "city")
    assert [list(table.columns) for table in seen] == [["age"]]
    assert seen[0]["age"].dtype == np.float64
    assert not caplog.records


@pytest.mark.parametrize("schema", [None, Schema([TensorSpec(np.dtype("float64"), (-1, 2))])])
def test_without_column_names_the_table_goes_in_as_it_is(schema):
    opened = open_native(served(lambda t: np.asarray(t)[:, 0] > 30, schema), rows=ROWS.astype(float))
    assert opened.columns == ()
    assert opened.decide(ROWS.astype(float)).tolist() == [False, False, True, True]


def test_the_native_model_inside_a_pyfunc_is_preferred(tmp_path):
    model = DecisionTreeClassifier(max_depth=1).fit(ROWS, [0, 0, 1, 1])
    trusted = ["sklearn.tree._tree.Tree"]
    mlflow.sklearn.save_model(model, tmp_path / "m", skops_trusted_types=trusted, pip_requirements=["scikit-learn"])
    pyfunc = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert flavor_of(pyfunc).MLFLOW_FLAVOR == "python_function"
    opened = open_native(pyfunc)
    assert opened.flavor == open_folder(tmp_path / "m").flavor == "sklearn"
    assert opened.score is not None


def test_a_folder_with_only_the_generic_flavor(tmp_path, monkeypatch):
    (tmp_path / "older_than_30.py").write_text(
        "class Model:\n"
        "    def predict(self, table, params=None):\n"
        "        return (table['age'] > 30).astype(int)\n"
        "def _load_pyfunc(path):\n"
        "    return Model()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mlflow.pyfunc.save_model(tmp_path / "m", loader_module="older_than_30", pip_requirements=["pandas"])
    opened = open_folder(tmp_path / "m", rows=ROWS)
    assert opened.flavor == "python_function"
    assert opened.classes == (0, 1)
    assert opened.decide(ROWS).tolist() == [0, 0, 1, 1]


def test_a_loaded_pyfunc_cannot_be_written():
    with pytest.raises(InputError, match="pass the URI or folder"):
        flavor_of(served(len)).save(served(len), "unused", signature=None, pip_requirements=[])


def test_a_folder_with_unknown_flavors_only(tmp_path):
    Model(flavors={"spark": {}}).save(tmp_path / "MLmodel")
    with pytest.raises(InputError, match=r"only the flavors \['spark'\]"):
        open_folder(tmp_path)


def test_an_explained_model_is_not_explained_again(tmp_path):
    Model(flavors={"mlflow_cf": {}, "python_function": {}}).save(tmp_path / "MLmodel")
    with pytest.raises(InputError, match="explained model already"):
        open_folder(tmp_path)


def test_a_linear_regression_pyfunc_needs_to_be_told_apart():
    model = LinearRegression().fit(ROWS, ROWS["age"])
    with pytest.raises(InputError, match="output='value'"):
        open_native(served(model.predict), rows=ROWS)


@pytest.mark.system
def test_frameworks_are_not_imported_for_questions():
    code = (
        "import json, sys\n"
        "from mlflow_cf.model import flavors\n"
        "answers = [flavors.flavor_named(name).accepts({}) for name in flavors.flavor_names()]\n"
        "named = {'sklearn', 'skops', 'xgboost', 'lightgbm', 'catboost', 'onnx', 'onnxruntime', 'torch'}\n"
        "frameworks = named & set(sys.modules)\n"
        "print(json.dumps([answers, sorted(frameworks)]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [[False] * len(MODULES), []]


def test_logistic_regression_reads_the_same_both_ways():
    model = LogisticRegression().fit(ROWS, [0, 0, 1, 1])
    native = open_native(model)
    generic = open_native(served(lambda t: model.predict_proba(t)[:, 1]), output="score", rows=ROWS)
    np.testing.assert_allclose(native.score(ROWS), generic.score(ROWS))
    np.testing.assert_array_equal(native.decide(ROWS), generic.decide(ROWS))
