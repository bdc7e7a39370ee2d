"""Saving and logging: what MLflow gets to see, and that it sees nothing of what failed."""

import json
import logging

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans
from mlflow import MlflowClient
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema, TensorSpec
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.artifact.publish import hand_over as publish
from mlflow_cf.artifact.publish import inner, log

TABLE = small_loans.table()
LABELS = small_loans.labels(TABLE)
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 3)
OPTIONS = {"target": "good", "constraints": small_loans.CONSTRAINTS}


@pytest.fixture(autouse=True)
def experiment(request):
    """Give every test its own experiment."""
    mlflow.set_experiment(request.node.name)


def logged_models():
    return mlflow.search_logged_models(output_format="list")


@pytest.fixture(scope="module")
def logged():
    """Return the info of a logged and registered model, and of the run it was logged in."""
    mlflow.set_experiment("log model")
    with mlflow.start_run() as run:
        mlflow.log_param("depth", 3)
        info = mlflow_cf.log_model(
            MODEL,
            "explained",
            TABLE,
            LABELS,
            **OPTIONS,
            registered_model_name="loans",
            tags={"team": "credit"},
            metadata={"card": {"owner": "team"}},
        )
    return info, run


class TestLogModel:
    def test_it_is_there_in_the_run_and_in_the_registry(self, logged):
        info, run = logged
        client = MlflowClient()
        model = client.get_logged_model(info.model_id)
        assert (model.name, model.status.value, model.source_run_id) == ("explained", "READY", run.info.run_id)
        assert [out.model_id for out in client.get_run(run.info.run_id).outputs.model_outputs] == [info.model_id]
        assert model.tags.items() >= {"team": "credit", "cf.explainer": "geco"}.items()
        told = {"cf.explainer": "geco", "cf.target": '{"label": "good"}', "cf.background_rows": str(small_loans.ROWS)}
        told |= {"cf.seed": "0", "cf.certify": "False", "cf.time_limit_s": "5"}
        digest, options = (model.params[name] for name in ("cf.constraints", "cf.explainer_options"))
        assert model.params == {"depth": "3", "cf.constraints": digest, "cf.explainer_options": options, **told}
        assert json.loads(options)["q"] == 100
        assert client.get_run(run.info.run_id).data.params == model.params
        version = client.get_model_version("loans", info.registered_model_version)
        assert version.source == info.model_uri == f"models:/{info.model_id}"
        assert version.tags["team"] == "credit"
        assert version.description.startswith("Predictions of a sklearn model of 5 features. With each comes what ")
        assert "it becomes good. Explainer: geco. Constraints: immutable age, " in version.description
        assert "target       label good" in version.description
        assert info.metadata == {"card": {"owner": "team"}}

    def test_two_in_one_run_keep_their_own_params(self):
        with mlflow.start_run() as run:
            for explainer in ("geco", "random_search"):
                info = mlflow_cf.log_model(MODEL, explainer, TABLE, target="good", explainer=explainer)
                assert MlflowClient().get_logged_model(info.model_id).params["cf.explainer"] == explainer
        assert MlflowClient().get_run(run.info.run_id).data.params["cf.explainer"] == "geco"

    def test_what_mlmodel_says(self, logged):
        meta = Model.load(logged[0].model_uri)
        assert set(meta.flavors) == {"mlflow_cf", "python_function"}
        assert meta.flavors["python_function"]["loader_module"] == "mlflow_cf"
        conf = meta.flavors["mlflow_cf"]
        assert (conf["schema_version"], conf["explainer"]) == (2, "geco")
        assert conf["inner_flavors"] == ["python_function", "sklearn"]
        assert not {"inner_model_id", "inner_model_uri"} & set(conf)
        assert meta.signature.params.params[0].name == "counterfactual"
        assert meta.model_size_bytes > 1000

    def test_files(self, logged, tmp_path):
        folder = tmp_path / "model"
        mlflow.artifacts.download_artifacts(logged[0].model_uri, dst_path=str(folder))
        assert small_loans.files(folder) == [
            "MLmodel",
            "conda.yaml",
            *(f"counterfactual/{name}" for name in ("background.parquet", "explainer.json", "features.json")),
            *(f"counterfactual/{name}" for name in ("labels.parquet", "manifest.json", "policy.yaml")),
            "input_example.json",
            *(
                f"model/{name}"
                for name in ("MLmodel", "conda.yaml", "model.skops", "python_env.yaml", "requirements.txt")
            ),
            "python_env.yaml",
            *(["registered_model_meta"] if (folder / "registered_model_meta").exists() else []),
            "requirements.txt",
            "serving_input_example.json",
        ]
        lines = (folder / "requirements.txt").read_text().split("\n")
        assert lines[0] == f"mlflow-cf=={mlflow_cf.__version__}"
        assert any(line.startswith("scikit-learn==") for line in lines)
        assert sum(line.startswith("mlflow==") for line in lines) == 1

    def test_the_example_is_strict_json_and_can_be_served(self, logged, tmp_path):
        folder = mlflow.artifacts.download_artifacts(logged[0].model_uri, dst_path=str(tmp_path))
        for name in ("input_example.json", "serving_input_example.json"):
            json.loads((tmp_path / name).read_text(), parse_constant=pytest.fail)
        meta = Model.load(folder)
        assert len(meta.load_input_example(folder)) == 3
        assert meta.load_input_example_params(folder) == {"counterfactual": {"count": 1}}
        with pytest.warns(FutureWarning, match="validate_serving_input"):
            reply = mlflow.models.validate_serving_input(folder, meta.get_serving_input(folder))
        assert list(reply["prediction"]) == MODEL.predict(TABLE.head(3)).tolist()

    def test_it_explains_as_in_memory_from_every_address(self, logged):
        info, run = logged
        MlflowClient().set_registered_model_alias("loans", "champion", info.registered_model_version)
        expected = mlflow_cf.wrap(MODEL, TABLE, LABELS, **OPTIONS).predict(ASKED)
        assert set(expected["status"]) == {"found"}
        addresses = [info.model_uri, "models:/loans/1", "models:/loans@champion", f"runs:/{run.info.run_id}/explained"]
        for address in addresses:
            pd.testing.assert_frame_equal(mlflow.pyfunc.load_model(address).predict(ASKED), expected)
            pd.testing.assert_frame_equal(mlflow_cf.load_model(address).predict(ASKED), expected)

    def test_the_loaded_model_is_the_saved_one(self, logged):
        explained = mlflow_cf.load_model(logged[0].model_uri)
        pd.testing.assert_frame_equal(explained.background, TABLE)
        assert explained.labels.tolist() == LABELS.tolist()
        assert explained.policy.constraints.max_changes == 2
        assert explained.describe() == mlflow_cf.wrap(MODEL, TABLE, LABELS, **OPTIONS).describe()


def test_without_a_run():
    info = mlflow_cf.log_model(MODEL, "alone", TABLE, **OPTIONS)
    assert info.run_id is None
    assert mlflow.active_run() is None
    assert [model.model_id for model in logged_models()] == [info.model_id]


def test_nothing_alarming_is_said(caplog, recwarn, capfd, monkeypatch):
    monkeypatch.setattr("mlflow_cf.artifact.publish.requirements._address", lambda: None)  # as if it came from an index
    with caplog.at_level(logging.INFO), mlflow.start_run():
        info = mlflow_cf.log_model(MODEL, "quiet", TABLE, LABELS, **OPTIONS)
        mlflow.pyfunc.load_model(info.model_uri).predict(ASKED)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    shown = [w for w in recwarn if not issubclass(w.category, DeprecationWarning)]  # Python hides those of libraries
    assert [str(warning.message) for warning in shown] == []
    assert "WARNING" not in capfd.readouterr().err


BAD = {
    "unknown feature": ({"constraints": {"ranges": {"incom": [0, 1]}}}, "constraints.ranges.incom: .*'income'"),
    "unknown key": ({"constraints": {"imutable": ["age"]}}, "constraints.imutable: .*'immutable'"),
    "unknown target": ({"target": "great"}, "target.label: "),
    "no target": ({"target": None}, "target: the favourable label cannot be inferred"),
    "unknown explainer": ({"explainer": "geko"}, "explainer: .*'geco'"),
    "no rows": ({"data": TABLE.head(0)}, "data: 0 rows"),
    "twice the same name": ({"data": pd.concat([TABLE, TABLE[["age"]]], axis=1)}, "data"),
    "column missing": ({"data": TABLE.drop(columns="income")}, "data.*income"),
    "not a table": ({"data": TABLE.to_dict()}, "data: a dict is not a table"),
    "labels too short": ({"labels": LABELS[:5]}, "labels: "),
    "not fitted": ({"model": LogisticRegression()}, "model: LogisticRegression is not fitted"),
    "nothing there": ({"model": "models:/nobody/1"}, "model: 'models:/nobody/1' cannot be fetched"),
    "no model folder": ({"model": "."}, "model: there is no MLmodel file"),
    "not a model": ({"model": {"a": 1}}, "model: dict is not a kind of model"),
    "registry name": ({"registered_model_name": "a/b"}, "registered_model_name: Invalid model name"),
    "requirements file": (
        {"pip_requirements": "no.txt"},
        r"pip_requirements: there is no file 'no.txt'; .*\['no.txt'\]",
    ),
    "requirements": ({"pip_requirements": 5}, "pip_requirements: a int is not a list"),
    "requirement": ({"pip_requirements": ["a", 5]}, r"pip_requirements\[1\]: must be a text, got 5"),
    "code": ({"code_paths": 5}, "code_paths: a int is not a list"),
    "metadata": ({"metadata": {"when": object()}}, "metadata: cannot be written"),
    "example of other rows": ({"input_example": TABLE[["age"]]}, "income: column is missing"),
    "example of another kind": ({"input_example": [1, 2]}, "input_example: is neither rows nor"),
    "example asks too much": ({"input_example": (TABLE.head(1), {"counterfactual": {"count": 1000}})}, "count"),
    "signature": ({"signature": ModelSignature(Schema([ColSpec("long", "age")]))}, "signature: its inputs lack"),
    "signature of tensors": (
        {"signature": ModelSignature(Schema([TensorSpec(np.dtype("float64"), (-1, 5))]))},
        "signature: is one of tensors, and an explained model takes columns; leave the signature out",
    ),
    "function": (
        {"model": MODEL.predict, "output": "label"},
        "model: predict is a function, .* pass allow_functions=True",
    ),
    "function of unknown answers": ({"model": MODEL.predict}, "output: a function does not say what it answers"),
}


@pytest.mark.parametrize("name", BAD)
def test_nothing_is_logged_when_something_does_not_fit(name, tmp_path):
    changed, message = BAD[name]
    arguments = {"model": MODEL, "data": TABLE, **OPTIONS, **changed}
    with mlflow.start_run() as run, pytest.raises(mlflow_cf.InputError, match=message):
        mlflow_cf.log_model(**arguments, name="broken")
    assert logged_models() == []
    assert MlflowClient().get_run(run.info.run_id).outputs.model_outputs == []
    arguments.pop("registered_model_name", None)
    if name != "registry name":
        with pytest.raises(mlflow_cf.InputError, match=message):
            mlflow_cf.save_model(**arguments, path=tmp_path / "broken")
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": 5}, "name: must be a text, got 5"),
        ({"name": ""}, "name: must be a text, got ''"),
        ({"name": "a/b.c"}, r"name: 'a/b.c' has \. / in it, .*; write 'a_b_c'"),
        ({"registered_model_name": 5}, "registered_model_name: must be a text, got 5"),
        ({"tags": ["x"]}, "tags: a list is not a dict"),
    ],
)
def test_names_and_tags_are_refused_before_anything_is_built(changed, message, monkeypatch):
    monkeypatch.setattr(log, "build", None)
    with pytest.raises(mlflow_cf.InputError, match=message):
        mlflow_cf.log_model(**{"model": MODEL, "name": "broken", "data": TABLE, **OPTIONS, **changed})


def test_no_code_paths_are_as_good_as_an_empty_list(tmp_path):
    mlflow_cf.save_model(MODEL, tmp_path / "model", TABLE, **OPTIONS, code_paths=None)
    assert mlflow_cf.load_model(tmp_path / "model").model.classes == ("bad", "good")


@pytest.mark.parametrize("fault", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_no_failed_model_stays_when_the_store_fails(fault, monkeypatch):
    whole = publish._Staged.save_model

    def half(*args, **kwargs):
        whole(*args, **kwargs)
        raise fault

    monkeypatch.setattr(publish._Staged, "save_model", half)
    with pytest.raises(type(fault)), mlflow.start_run():
        mlflow_cf.log_model(MODEL, "broken", TABLE, **OPTIONS)
    assert logged_models() == []


def test_a_model_that_decides_otherwise_from_disk_is_not_saved(monkeypatch, tmp_path):
    other = DecisionTreeClassifier(max_depth=1).fit(TABLE[["age", "income"]], LABELS)
    inner_write = inner.write
    monkeypatch.setattr(
        mlflow_cf.artifact.publish.inner, "write", lambda _, *rest, **options: inner_write(other, *rest, **options)
    )
    fitted = DecisionTreeClassifier(max_depth=5, random_state=0).fit(TABLE[["age", "income"]], LABELS)
    with pytest.raises(mlflow_cf.InputError, match="decides other rows once it is loaded"):
        mlflow_cf.save_model(fitted, tmp_path / "m", TABLE[["age", "income"]], target="good")
    assert not (tmp_path / "m").exists()


class TestSaveModel:
    def test_the_folder_is_a_whole_mlflow_model(self, tmp_path):
        mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, LABELS, **OPTIONS)
        expected = mlflow_cf.wrap(MODEL, TABLE, LABELS, **OPTIONS).predict(ASKED)
        (tmp_path / "m").rename(tmp_path / "elsewhere")
        for load in (mlflow.pyfunc.load_model, mlflow_cf.load_model):
            pd.testing.assert_frame_equal(load(str(tmp_path / "elsewhere")).predict(ASKED), expected)
        assert mlflow_cf.load_model(tmp_path / "elsewhere").explainer.name == "geco"
        meta = Model.load(str(tmp_path / "elsewhere"))
        assert (meta.run_id, meta.model_id) == (None, None)

    def test_an_empty_folder_is_taken_and_another_is_not(self, tmp_path):
        (tmp_path / "empty").mkdir()
        mlflow_cf.save_model(MODEL, tmp_path / "empty", TABLE, **OPTIONS)
        before = small_loans.files(tmp_path / "empty")
        for taken in (tmp_path / "empty", tmp_path / "empty" / "MLmodel"):
            with pytest.raises(mlflow_cf.InputError, match=r"path: .* is not an empty folder"):
                mlflow_cf.save_model(MODEL, taken, TABLE, **OPTIONS)
        assert small_loans.files(tmp_path / "empty") == before

    def test_own_requirements_signature_and_example(self, tmp_path):
        names = list(TABLE.columns)
        kinds = ["double", "double", "string", "boolean", "double"]
        inputs = Schema([ColSpec(kind, name) for kind, name in zip(kinds, names, strict=True)])
        rows = TABLE.iloc[[5]].astype({"age": float})
        mlflow_cf.save_model(
            MODEL,
            tmp_path / "m",
            TABLE,
            **OPTIONS,
            signature=ModelSignature(inputs),
            input_example=(rows, {"counterfactual": {"explain": "all", "count": 2}}),
            pip_requirements=["pandas", "MLflow_CF>=0", "scikit-learn"],
        )
        meta = Model.load(str(tmp_path / "m"))
        assert meta.signature.inputs == inputs
        assert meta.signature.outputs.input_names()[0] == "prediction"
        assert meta.load_input_example_params(str(tmp_path / "m"))["counterfactual"]["count"] == 2
        lines = (tmp_path / "m" / "requirements.txt").read_text().split("\n")
        assert [line for line in lines if "cf" in line.lower()] == ["MLflow_CF>=0"]  # the user's own word for it
        assert "pandas" in lines


class TestLoading:
    def test_a_model_that_is_not_ours(self, tmp_path):
        mlflow.sklearn.save_model(
            MODEL, tmp_path / "m", pip_requirements=["scikit-learn"], skops_trusted_types=["numpy.dtype"]
        )
        with pytest.raises(mlflow_cf.ArtifactError, match="MLmodel: names no explained model"):
            mlflow_cf.load_model(tmp_path / "m")

    @pytest.mark.parametrize("content", [None, b"", b"flavors: [", b"\xff", b"flavors: {mlflow_cf: 3}"])
    def test_a_broken_mlmodel(self, content, tmp_path):
        mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS)
        (tmp_path / "m" / "MLmodel").unlink()
        if content is not None:
            (tmp_path / "m" / "MLmodel").write_bytes(content)
        with pytest.raises(mlflow_cf.ArtifactError, match="MLmodel: "):
            mlflow_cf.load_model(tmp_path / "m")

    def test_nothing_at_that_address(self):
        with pytest.raises(mlflow_cf.InputError, match="cannot be fetched"):
            mlflow_cf.load_model("models:/nobody@champion")

    def test_an_altered_artifact_is_not_served(self, tmp_path):
        mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS)
        policy = tmp_path / "m" / "counterfactual" / "policy.yaml"
        policy.write_text(policy.read_text().replace("age", "income"))
        for load in (mlflow.pyfunc.load_model, mlflow_cf.load_model):
            with pytest.raises(mlflow_cf.ArtifactError, match=r"counterfactual/policy.yaml: has other bytes"):
                load(str(tmp_path / "m"))
