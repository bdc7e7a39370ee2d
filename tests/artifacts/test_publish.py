"""Logging is all or nothing, whichever call of the store or the registry fails, and however it fails."""

import contextlib
import itertools
import json
import shutil

import mlflow
import pytest
import small_loans
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.model_registry import sqlalchemy_store as registry
from mlflow.store.tracking import sqlalchemy_store as tracking
from sqlalchemy.exc import OperationalError

import mlflow_cf
from mlflow_cf.artifact.publish import log
from mlflow_cf.artifact.publish.account import Account
from mlflow_cf.artifact.publish.build import Built
from mlflow_cf.artifact.publish.hand_over import PUBLICATION, Publication

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
OPTIONS = {"target": "good", "constraints": small_loans.CONSTRAINTS}
ACCOUNT = Account({"cf.explainer": "geco"}, "what it is")
CALLS = 28
FULL = "database or disk is full"
FAULTS = {
    "interrupted": KeyboardInterrupt,
    "full": lambda: MlflowException(FULL, TEMPORARILY_UNAVAILABLE),
    "raw": lambda: OperationalError("INSERT", {}, Exception(FULL)),
    "gone": lambda: OSError("connection lost"),
}
ADDS = ("create_", "set_", "log_")
WRITES = (*ADDS, "delete_", "finalize_", "update_")


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """Return a finished model folder."""
    folder = tmp_path_factory.mktemp("staged") / "m"
    mlflow_cf.save_model(MODEL, folder, TABLE, **OPTIONS)
    return folder


class Broken:
    """Stores of which one call fails, before or after it has done its work, or all with such names from then on."""

    def __init__(self, monkeypatch, fault, at, when):
        self.fault, self.at, self.when = fault, at, when
        self.count, self.inside = 0, False
        for store in (tracking.SqlAlchemyStore, registry.SqlAlchemyStore):
            for name in [name for name in dir(store) if not name.startswith("_") and callable(getattr(store, name))]:
                if isinstance(vars(store).get(name), type(Broken.__init__)):
                    monkeypatch.setattr(store, name, self.counted(name, getattr(store, name)))

    def counted(self, name, call):
        def counting(store, *args, **kwargs):
            if self.inside:
                return call(store, *args, **kwargs)
            self.count += 1
            fails_on = name.startswith(self.when) and self.count >= self.at if isinstance(self.when, tuple) else False
            if fails_on or (self.when == "before" and self.count == self.at):
                raise self.fault()
            self.inside = True
            try:
                result = call(store, *args, **kwargs)
            finally:
                self.inside = False
            if self.when == "after" and self.count == self.at:
                raise self.fault()
            return result

        return counting


def published(staged, name):
    """Return what logging and registering a model returned; None if it failed."""
    publication = Publication("explained", name, {"team": "credit"})
    try:
        with publication.withdrawn_on_failure():
            return publication.publish(staged, ACCOUNT)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  what is left is asked elsewhere
        return None


def logged():
    return {model.model_id: model for model in mlflow.search_logged_models(output_format="list")}


def versions(name):
    return {version.source for version in MlflowClient().search_model_versions(f"name='{name}'")}


def names():
    return {model.name for model in MlflowClient().search_registered_models()}


@pytest.mark.parametrize("before", [False, True], ids=["new name", "known name"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_one_call_fails(staged, when, before, monkeypatch):
    mlflow.set_experiment(f"one call fails {when} {before}")
    name = f"loans {when} {before}"
    if before:
        published(staged, name)
    old = logged()
    assert len(versions(name)) == len(old) == before
    faults = itertools.cycle(FAULTS.values())
    for at in range(1, CALLS + 1):
        with monkeypatch.context() as patch:
            broken = Broken(patch, next(faults), at, when)
            info = published(staged, name)
        if info is None:
            assert (set(logged()), versions(name), name in names()) == (
                set(old),
                {f"models:/{m}" for m in old},
                before,
            ), at
            continue
        assert logged()[info.model_id].status.value == "READY"
        assert versions(name) >= {info.model_uri}
        if broken.count < at:
            break
        old = logged()
        before = True


@pytest.mark.parametrize("fault", ["full", "raw"])
@pytest.mark.parametrize("at", range(1, CALLS, 3))
def test_a_full_database_takes_nothing_new(staged, at, fault, monkeypatch):
    name = f"full {at} {fault}"
    mlflow.set_experiment(name)
    with monkeypatch.context() as patch:
        Broken(patch, FAULTS[fault], at, ADDS)
        info = published(staged, name)
    if info is None:
        assert (logged(), versions(name), name in names()) == ({}, set(), False)
    else:
        assert versions(name) == {info.model_uri}


@pytest.mark.parametrize("at", range(1, CALLS, 3))
def test_what_cannot_be_withdrawn_either_is_told(staged, at, monkeypatch, caplog):
    name = f"read-only {at}"
    mlflow.set_experiment(name)
    with monkeypatch.context() as patch:
        Broken(patch, FAULTS["full"], at, WRITES)
        info = published(staged, name)
    left = logged()
    assert versions(name) <= {f"models:/{model_id}" for model_id in left}, "a version of a deleted model"
    if info is None:
        assert all(f"{model_id} as failed" in caplog.text for model_id in left)


def test_it_takes_a_look_at_its_own_attempt_only(staged):
    mlflow.set_experiment("own attempt")
    first = published(staged, "shared")
    publication = Publication("explained", "shared", {})

    def interrupted():
        with publication.withdrawn_on_failure():
            publication.publish(staged, ACCOUNT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert set(logged()) == {first.model_id}
    assert versions("shared") == {first.model_uri}
    assert MlflowClient().get_logged_model(first.model_id).tags[PUBLICATION]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
def test_interrupted_between_registration_and_return(fault, monkeypatch):
    mlflow.set_experiment(f"interrupted {fault.__name__}")

    def interrupt(_):
        raise fault

    monkeypatch.setattr("mlflow_cf.artifact.publish.log.warn_of_pin", interrupt)
    with mlflow.start_run(), pytest.raises(fault):
        mlflow_cf.log_model(MODEL, "late", TABLE, **OPTIONS, registered_model_name="late")
    assert logged() == {}
    assert "late" not in names()


class TestSaving:
    @pytest.mark.parametrize("there", [False, True], ids=["new", "empty folder"])
    @pytest.mark.parametrize(
        "fault", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"]
    )
    @pytest.mark.parametrize("at", range(1, 16, 4))
    def test_a_write_fails(self, staged, there, at, fault, tmp_path, monkeypatch):
        folder = tmp_path / "deep" / "down" / "m" if not there else tmp_path
        count, copy2 = itertools.count(1), shutil.copy2

        def failing(source, target, **options):
            if next(count) == at:
                raise fault
            return copy2(source, target, **options)

        monkeypatch.setattr(log, "_built", lambda *_: contextlib.nullcontext(Built(staged, None)))
        # copytree has the real one as the default of a parameter
        defaults = tuple(failing if value is copy2 else value for value in shutil.copytree.__defaults__)
        monkeypatch.setattr(shutil.copytree, "__defaults__", defaults)
        with pytest.raises(type(fault)):
            mlflow_cf.save_model(MODEL, folder, TABLE, **OPTIONS)
        assert tmp_path.is_dir()
        assert list(tmp_path.iterdir()) == []


def test_metadata_with_shared_parts(tmp_path):
    shared = {"owner": ["team", 1]}
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS, metadata={"a": shared, "b": shared})
    assert "&id" not in (tmp_path / "m" / "MLmodel").read_text()
    assert json.loads((tmp_path / "m" / "counterfactual" / "manifest.json").read_text())["schema_version"] == 2
    assert mlflow_cf.load_model(tmp_path / "m").explainer.name == "geco"
