"""The model inside: given as an object, a URI, a folder or a loaded pyfunc; copied, and never forgotten."""

from pathlib import Path

import mlflow
import pandas as pd
import pytest
import small_loans
from mlflow import MlflowClient
from mlflow.models import Model

import mlflow_cf
from mlflow_cf.errors import InputError

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 2)
OPTIONS = {"target": "good", "constraints": small_loans.CONSTRAINTS}
TRUSTED = {"skops_trusted_types": ["numpy.dtype"], "pip_requirements": ["scikit-learn", "skops"]}


@pytest.fixture(scope="module")
def logged():
    """Return the info of a plain model that is logged and registered, and its run."""
    mlflow.set_experiment("inner models")
    with mlflow.start_run() as run:
        info = mlflow.sklearn.log_model(MODEL, name="plain", registered_model_name="plain", **TRUSTED)
    MlflowClient().set_registered_model_alias("plain", "champion", info.registered_model_version)
    return info, run


@pytest.mark.parametrize("kind", ["id", "version", "alias", "run", "folder", "string", "pyfunc"])
def test_every_address_gives_the_same_answers_and_is_remembered(kind, logged, tmp_path):
    info, run = logged
    uris = {
        "id": info.model_uri,
        "version": "models:/plain/1",
        "alias": "models:/plain@champion",
        "run": f"runs:/{run.info.run_id}/plain",
    }
    folder = mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(tmp_path / "copy"))
    others = {"folder": tmp_path / "copy", "string": folder, "pyfunc": mlflow.pyfunc.load_model(info.model_uri)}
    mlflow_cf.save_model({**uris, **others}[kind], tmp_path / "m", TABLE, **OPTIONS)
    conf = Model.load(str(tmp_path / "m")).flavors["mlflow_cf"]
    assert conf["inner_model_id"] == info.model_id
    assert conf.get("inner_model_uri") == {**uris, "pyfunc": info.model_uri}.get(kind)
    assert "model/registered_model_meta" not in small_loans.files(tmp_path / "m")
    expected = mlflow_cf.wrap(MODEL, TABLE, **OPTIONS).predict(ASKED)
    pd.testing.assert_frame_equal(mlflow_cf.load_model(tmp_path / "m").predict(ASKED), expected)


def test_wrapping_a_uri_in_memory(logged):
    expected = mlflow_cf.wrap(MODEL, TABLE, **OPTIONS).predict(ASKED)
    for model in (logged[0].model_uri, mlflow.pyfunc.load_model(logged[0].model_uri)):
        pd.testing.assert_frame_equal(mlflow_cf.wrap(model, TABLE, **OPTIONS).predict(ASKED), expected)


def test_the_source_is_not_touched(logged, tmp_path):
    folder = tmp_path / "copy"
    mlflow.artifacts.download_artifacts(logged[0].model_uri, dst_path=str(folder))
    before = {name: (folder / name).read_bytes() for name in small_loans.files(folder)}
    mlflow_cf.save_model(folder, tmp_path / "m", TABLE, **OPTIONS)
    assert {name: (folder / name).read_bytes() for name in small_loans.files(folder)} == before
    for name in set(before) - {"registered_model_meta"}:
        assert (tmp_path / "m" / "model" / name).read_bytes() == before[name]


def test_what_python_leaves_beside_a_models_code_is_not_copied(tmp_path):
    mlflow.set_experiment("inner models")
    info = mlflow.sklearn.log_model(MODEL, name="left", **TRUSTED)
    stored = Path(mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(tmp_path / "stored")))
    for folder in (stored / "__pycache__", stored / "code" / "__pycache__"):
        folder.mkdir(parents=True)
        (folder / "own.cpython-311.pyc").touch()
    MlflowClient().log_model_artifacts(info.model_id, str(stored))
    mlflow_cf.save_model(info.model_uri, tmp_path / "m", TABLE, **OPTIONS)
    assert not [name for name in small_loans.files(tmp_path / "m") if "pycache" in name]


def test_lineage_joins_with_the_registry(logged):
    with mlflow.start_run():
        info = mlflow_cf.log_model("models:/plain@champion", "explained", TABLE, **OPTIONS)
    client = MlflowClient()
    model = client.get_logged_model(info.model_id)
    version = client.get_model_version_by_alias("plain", "champion")
    assert model.tags["cf.inner_model_id"] == model.params["cf.inner_model_id"] == logged[0].model_id
    assert version.source == f"models:/{model.tags['cf.inner_model_id']}"
    assert model.tags["cf.inner_model_uri"] == "models:/plain@champion"
    text = f"tags.`cf.inner_model_id` = '{logged[0].model_id}'"
    found = mlflow.search_logged_models(filter_string=text, output_format="list")
    assert [found.model_id for found in found] == [info.model_id]


def test_requirements_of_the_model_come_along(logged, tmp_path):
    mlflow_cf.save_model(logged[0].model_uri, tmp_path / "m", TABLE, **OPTIONS)
    lines = (tmp_path / "m" / "requirements.txt").read_text().split("\n")
    assert lines == [
        f"mlflow-cf=={mlflow_cf.__version__}",
        *(tmp_path / "m" / "model" / "requirements.txt").read_text().split("\n"),
    ]


def test_constraints_of_the_model_come_along(tmp_path):
    (tmp_path / "limits.txt").write_text("numpy<100\n")
    trusted = {**TRUSTED, "pip_requirements": ["scikit-learn", f"-c {tmp_path / 'limits.txt'}"]}
    mlflow.sklearn.save_model(MODEL, tmp_path / "plain", **trusted)
    mlflow_cf.save_model(tmp_path / "plain", tmp_path / "m", TABLE, **OPTIONS)
    assert (tmp_path / "m" / "requirements.txt").read_text().split("\n")[-1] == "-c constraints.txt"
    assert (tmp_path / "m" / "constraints.txt").read_text() == "numpy<100"


def test_a_pyfunc_without_an_address(tmp_path):
    mlflow.sklearn.save_model(MODEL, tmp_path / "plain", **TRUSTED)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "plain"))
    with pytest.raises(InputError, match="does not know where it was loaded from; pass the folder"):
        mlflow_cf.save_model(loaded, tmp_path / "m", TABLE, **OPTIONS)


def test_an_explained_model_is_not_explained_again(tmp_path):
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS)
    for model in (tmp_path / "m", mlflow.pyfunc.load_model(str(tmp_path / "m"))):
        with pytest.raises(InputError, match="is an explained model already"):
            mlflow_cf.wrap(model, TABLE, **OPTIONS)


class TestGenericModels:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        """Return a model that only its own loader module knows, without any pickle."""
        (tmp_path / "income_rule.py").write_text(
            "class Rule:\n"
            "    def predict(self, table, params=None):\n"
            "        return (table['income'] + 5 * table['owner']) / 110\n"
            "def _load_pyfunc(path):\n"
            "    return Rule()\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        mlflow.pyfunc.save_model(tmp_path / "rule", loader_module="income_rule", pip_requirements=["pandas"])
        return tmp_path / "rule"

    def test_what_it_answers_is_sealed_into_the_artifact(self, folder, tmp_path):
        mlflow_cf.save_model(folder, tmp_path / "m", TABLE, constraints=small_loans.CONSTRAINTS, output="score")
        explained = mlflow_cf.load_model(tmp_path / "m")
        assert (explained.model.flavor, explained.model.classes) == ("python_function", (0, 1))
        replies = explained.predict(TABLE[TABLE["income"] < 40].head(2))
        assert set(replies["status"]) == {"found"}
        assert all(cf["probability"] >= 0.5 for reply in replies["counterfactuals"] for cf in reply)

    def test_it_has_to_be_said(self, folder, tmp_path):
        with pytest.raises(InputError, match="output='score'"):
            mlflow_cf.save_model(folder, tmp_path / "m", TABLE)

    def test_our_part_needs_no_pickle(self, folder, tmp_path, monkeypatch):
        monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        mlflow_cf.save_model(folder, tmp_path / "m", TABLE, output="score")
        assert len(mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(ASKED)) == 2


def test_a_function_is_stored_if_that_is_allowed(tmp_path):
    def likely(rows):
        return MODEL.predict_proba(rows)[:, 1]

    options = {"constraints": small_loans.CONSTRAINTS, "output": "score"}
    mlflow_cf.save_model(likely, tmp_path / "m", TABLE, **options, allow_functions=True, validate="here")
    expected = mlflow_cf.wrap(likely, TABLE, **options).predict(ASKED)
    assert set(expected["status"]) == {"found"}
    pd.testing.assert_frame_equal(mlflow.pyfunc.load_model(str(tmp_path / "m")).predict(ASKED), expected)


def test_mlflows_own_gate_for_estimators_stays_closed(tmp_path, monkeypatch):
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS)
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    with pytest.raises(mlflow.MlflowException, match="MLFLOW_ALLOW_PICKLE_DESERIALIZATION"):
        mlflow_cf.load_model(tmp_path / "m")
