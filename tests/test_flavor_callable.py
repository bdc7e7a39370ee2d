"""Python functions: labels, scores and values as their caller says; clear errors for what answers otherwise."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import mlflow
import numpy as np
import pandas as pd
import pytest
from boosting_rows import check_counterfactuals, same_answers
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native
from mlflow_cf_flavors import callables as flavor

ROWS = 2000
RNG = np.random.default_rng(5)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, ROWS),
        "income": pd.Series(RNG.normal(40, 10, ROWS).round(1)).mask(RNG.random(ROWS) < 0.1),
        "job": RNG.choice(["clerk", "cook", "nurse"], ROWS),
        "region": pd.Categorical(RNG.choice(["north", "south"], ROWS)),
    }
)


def value(rows):
    return rows["income"].fillna(30) + 5 * (rows["job"] == "nurse") + 4 * (rows["region"] == "south").astype(int)


def score(rows):
    return 1 / (1 + np.exp((43 - value(rows)) / 4))


def margins(rows):
    return np.column_stack((40 - value(rows), np.full(len(rows), 1.0), value(rows) - 46))


def shares(rows):
    powers = np.exp(margins(rows) / 10)
    return powers / powers.sum(axis=1, keepdims=True)


def word(rows):
    return np.where(value(rows) > 45, "top", np.where(value(rows) > 38, "middle", "low"))


SHAPES = {
    "array": np.asarray,
    "list": lambda answers: np.asarray(answers).tolist(),
    "series": pd.Series,
    "table": lambda answers: pd.DataFrame({"answer": np.asarray(answers)}),
    "nullable": lambda answers: pd.Series(answers).convert_dtypes(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_labels(shape):
    opened = open_native(lambda rows: SHAPES[shape](word(rows)), output="label", rows=TABLE)
    assert opened.flavor == "mlflow_cf_function"
    assert opened.classes == ("low", "middle", "top")
    np.testing.assert_array_equal(opened.decide(TABLE), word(TABLE))
    assert opened.score is None
    assert opened.score_kind == "none"
    assert "labels only" in opened.notes[0]


@pytest.mark.parametrize(
    ("function", "classes"),
    [
        (lambda rows: (value(rows) > 43).to_numpy(), (False, True)),
        (lambda rows: np.where(value(rows) > 43, 2, -1), (-1, 2)),
        (lambda rows: np.where(value(rows) > 43, 0.5, 1.5), (0.5, 1.5)),
        (lambda rows: (value(rows) > 43).astype("boolean"), (False, True)),
    ],
)
def test_labels_are_plain_python_values(function, classes):
    opened = open_native(function, output="label", rows=TABLE)
    assert opened.classes == classes
    assert [type(label) for label in opened.classes] == [type(label) for label in classes]
    assert opened.decide(TABLE).tolist() == np.asarray(function(TABLE)).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_score_is_the_probability_of_1(shape):
    opened = open_native(lambda rows: SHAPES[shape](score(rows)), output="score", rows=TABLE)
    assert opened.classes == (0, 1)
    assert opened.score_kind == "probability"
    expected = score(TABLE).to_numpy()
    np.testing.assert_array_equal(opened.score(TABLE), np.column_stack((1 - expected, expected)))
    np.testing.assert_array_equal(opened.decide(TABLE), expected > 0.5)


def test_one_half_is_not_enough():
    opened = open_native(lambda rows: np.where(rows["age"] > 40, 0.5, 0.500001), output="score", rows=TABLE)
    np.testing.assert_array_equal(opened.decide(TABLE), TABLE["age"] <= 40)


@pytest.mark.parametrize(("function", "kind"), [(shares, "probability"), (margins, "margin")])
@pytest.mark.parametrize("named", [False, True])
def test_a_score_per_class(function, kind, named):
    names = ["low", "middle", "top"]
    answer = (lambda rows: pd.DataFrame(function(rows), columns=names)) if named else function
    opened = open_native(answer, output="score", rows=TABLE)
    assert opened.classes == (tuple(names) if named else (0, 1, 2))
    assert opened.score_kind == kind
    np.testing.assert_array_equal(opened.score(TABLE), function(TABLE))
    np.testing.assert_array_equal(opened.decide(TABLE), np.array(opened.classes)[function(TABLE).argmax(axis=1)])


@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape):
    opened = open_native(lambda rows: SHAPES[shape](value(rows)), output="value", rows=TABLE)
    assert opened.regression
    np.testing.assert_array_equal(opened.decide(TABLE), value(TABLE))
    assert opened.decide(TABLE).dtype == np.float64


class Machine:
    """An object that can be called."""

    def __call__(self, rows):
        return score(rows)

    def answer(self, rows):
        return score(rows)


@pytest.mark.parametrize("function", [Machine(), Machine().answer, functools.partial(score)], ids=type)
def test_whatever_can_be_called(function):
    assert flavor_of(function) is flavor
    same_answers(
        open_native(function, output="score", rows=TABLE), open_native(score, output="score", rows=TABLE), TABLE
    )


def test_a_method_of_a_model():
    rows = TABLE[["age"]]
    model = LogisticRegression().fit(rows, TABLE["age"] > 40)
    opened = open_native(model.predict_proba, output="score", rows=rows)
    np.testing.assert_array_equal(opened.score(rows), model.predict_proba(rows))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (None, "output: a function does not say what it answers; pass output='label', 'score' or 'value'"),
        ("labels", "output: 'labels' is not known; pass output='label', 'score' or 'value'"),
    ],
)
def test_it_must_be_said_what_a_function_answers(output, text):
    with pytest.raises(InputError) as caught:
        open_native(score, output=output, rows=TABLE)
    assert caught.value.message == text
    with pytest.raises(InputError, match="data: rows are needed"):
        open_native(score, output="score")


@pytest.mark.parametrize(
    ("output", "function", "fact"),
    [
        ("score", word, "cannot answer these rows .ValueError: could not convert"),
        ("score", lambda rows: score(rows).mask(rows["age"] == 40), "not finite"),
        ("value", word, "could not convert string to float"),
        ("value", shares, "shape .*, not one per row"),
        ("label", shares, "shape .*, not one per row"),
        ("label", lambda rows: pd.Series(word(rows)).mask(rows["age"] == 40), "missing values"),
        ("label", lambda rows: [(1, 2)] * len(rows), "answers .'tuple'., which are no labels"),
        ("value", lambda rows: rows["age"].mean(), "not one per row"),
        ("score", lambda rows: np.zeros((len(rows), 2, 2)), "neither"),
        ("value", lambda rows: value(rows)[1:], "1999 answers for 2000 rows"),
        ("score", lambda rows: shares(rows).squeeze() if len(rows) > 1 else shares(rows)[0], "3 answers for 1 rows"),
        ("value", lambda rows: value(rows) / value(rows).max(), "when it is asked alone"),
        ("value", lambda rows: RNG.random(len(rows)), "when it is asked alone"),
        ("label", lambda rows: rows["salary"], "KeyError: 'salary'"),
    ],
)
def test_what_a_function_answers_is_checked_when_opening(output, function, fact):
    with pytest.raises(InputError, match=fact) as caught:
        open_native(function, output=output, rows=TABLE)
    assert caught.value.fix


def test_answers_that_go_wrong_later_do_not_pass_for_scores():
    opened = open_native(lambda rows: score(rows).mask(rows["age"] == 99), output="score", rows=TABLE)
    with pytest.raises(ValueError, match="not finite") as caught:
        opened.score(TABLE.head(2).assign(age=99))
    assert not isinstance(caught.value, InputError)
    widths = open_native(lambda rows: shares(rows)[:, : 2 + (rows["age"] < 99).all()], output="score", rows=TABLE)
    with pytest.raises(ValueError, match="2 scores per row where there were 3"):
        widths.score(TABLE.head(2).assign(age=99))


def test_a_function_may_change_its_table():
    def careless(rows):
        rows["income"] = rows["income"].fillna(30)
        rows.insert(0, "more", 1)
        return score(rows)

    before = TABLE.copy()
    opened = open_native(careless, output="score", rows=TABLE)
    opened.decide(TABLE)
    np.testing.assert_array_equal(opened.score(TABLE)[:, 1], score(TABLE))
    pd.testing.assert_frame_equal(TABLE, before)


def test_threads_get_the_same_answers():
    opened = open_native(shares, output="score", rows=TABLE)
    expected = opened.score(TABLE)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: opened.score(TABLE), range(24)):
            np.testing.assert_array_equal(got, expected)


def test_classes_and_other_objects_are_no_functions():
    with pytest.raises(InputError, match="type is not a kind of model known here"):
        open_native(Machine, output="score", rows=TABLE)
    assert not flavor.accepts("score")


class TestSaving:
    """Only by those who ask for a pickle."""

    @pytest.mark.parametrize(("function", "name"), [(score, "score"), (Machine(), "Machine")], ids=["plain", "object"])
    def test_refused(self, function, name, tmp_path):
        with pytest.raises(InputError) as caught:
            flavor.save(function, tmp_path / "m", signature=None, pip_requirements=[])
        assert caught.value.message == (
            f"model: {name} is a function, and the only way to store one is a pickle, which runs code when it is "
            "loaded; pass allow_functions=True if you trust whoever can write to the model store"
        )
        with pytest.raises(InputError, match="allow_functions=True"):
            mlflow_cf.save_model(function, tmp_path / "m", TABLE, output="score")
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(
        ("function", "output"),
        [(lambda rows: score(rows) ** 2, "score"), (Machine(), "score"), (word, "label"), (value, "value")],
        ids=["lambda", "object", "labels", "values"],
    )
    def test_saved_and_loaded(self, function, output, tmp_path):
        flavor.save(
            function,
            tmp_path / "m",
            signature=None,
            pip_requirements=flavor.requirements(function),
            allow_functions=True,
        )
        assert set(mlflow.models.Model.load(str(tmp_path / "m")).flavors) == {"mlflow_cf_function", "python_function"}
        opened = open_native(function, output=output, rows=TABLE)
        same_answers(opened, open_folder(tmp_path / "m", output=output, rows=TABLE), TABLE)

    def test_mlflow_alone_can_serve_it(self, tmp_path):
        flavor.save(
            score, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(score), allow_functions=True
        )
        loaded = mlflow.pyfunc.load_model(str(tmp_path / "m"))
        np.testing.assert_array_equal(loaded.predict(TABLE), score(TABLE))
        assert open_native(loaded, output="score", rows=TABLE).flavor == "mlflow_cf_function"

    def test_requirements_are_pinned(self):
        pins = flavor.requirements(score)
        assert pins[0] == f"mlflow-cf=={mlflow_cf.__version__}"
        assert {pin.split("==")[0] for pin in pins} == {"mlflow-cf", "cloudpickle", "numpy", "pandas"}

    def test_what_cannot_be_pickled_is_named(self, tmp_path):
        lock = threading.Lock()

        def locked(rows):
            with lock:
                return score(rows)

        with pytest.raises(InputError, match=r"cannot be pickled.*lock"):
            flavor.save(locked, tmp_path / "m", signature=None, pip_requirements=[], allow_functions=True)

    def test_nothing_is_unpickled_where_pickles_are_forbidden(self, tmp_path, monkeypatch):
        flavor.save(
            score, tmp_path / "m", signature=None, pip_requirements=flavor.requirements(score), allow_functions=True
        )
        monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        with pytest.raises(mlflow.MlflowException, match="pickle"):
            flavor.load(tmp_path / "m")


class TestCounterfactuals:
    """End to end; every counterfactual is decided again by the function alone."""

    def test_score(self):
        explained = mlflow_cf.wrap(score, TABLE, output="score", constraints={"immutable": ["age"]})
        check_counterfactuals(explained, TABLE[score(TABLE) <= 0.5].head(6), lambda rows: score(rows) > 0.5)

    def test_labels(self):
        explained = mlflow_cf.wrap(word, TABLE, output="label", target="top")
        check_counterfactuals(explained, TABLE[word(TABLE) == "low"].head(6), lambda rows: word(rows) == "top")

    @pytest.mark.parametrize("function", [shares, margins])
    def test_several_classes(self, function):
        explained = mlflow_cf.wrap(function, TABLE, output="score", target=mlflow_cf.Target.other())
        rows = TABLE[function(TABLE).argmax(axis=1) == 0].head(6)
        check_counterfactuals(explained, rows, lambda rows: function(rows).argmax(axis=1) != 0)

    def test_values(self):
        explained = mlflow_cf.wrap(value, TABLE, output="value", target=mlflow_cf.Target(low=45, high=48))
        check_counterfactuals(explained, TABLE[value(TABLE) < 40].head(6), lambda rows: value(rows).between(45, 48))


def test_a_bare_score_outside_0_and_1_is_graded_as_it_is_and_no_probability():
    rows = pd.DataFrame({"debt": np.arange(0.0, 400.0, 5.0), "age": np.tile([20, 40], 40)})
    explained = mlflow_cf.wrap(lambda table: 1.0 - table["debt"].to_numpy() / 200, rows, target=1, output="score")
    assert explained.model.score_kind == "score"
    assert "outside [0, 1]" in explained.describe()["notes"][0]
    found = explained.explain(pd.DataFrame({"debt": [390.0], "age": [20]}))[0]
    assert found.probability is None
    assert found.counterfactuals[0].row == {"debt": 95.0, "age": 20}  # 1 - 95/200 = 0.525; 100 gives 0.5, not more
    with pytest.raises(InputError, match="gives no probabilities"):
        mlflow_cf.wrap(
            lambda table: 1.0 - table["debt"].to_numpy() / 200,
            rows,
            target={"label": 1, "min_probability": 0.6},
            output="score",
        )
