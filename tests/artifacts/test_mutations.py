"""Damaged and forged artifacts: refused with our own error, and nothing in them is ever run."""

import json
import shutil
from pathlib import Path

import artifact_mutations
import numpy as np
import pandas as pd
import pytest
import small_loans
from artifact_mutations import RUN, Mutation, chosen, random_damage

import mlflow_cf
from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.errors import ArtifactError

ASKED = small_loans.rejected(small_loans.table(), 1)
QUERY = {"counterfactual": {"max_evaluations": 500}}
CHOSEN = list(chosen())
BY_CHANCE = 100


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return artifact_mutations.saved(tmp_path_factory.mktemp("mutations"))


@pytest.fixture(scope="module")
def answer(saved):
    return mlflow_cf.load_model(saved).predict(ASKED, QUERY)


@pytest.fixture
def copy(saved, tmp_path, monkeypatch):
    """Return a copy to spoil; code that is run would leave its mark in the working directory."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def check(mutation: Mutation, copy, answer) -> None:
    mutation.apply(copy)
    if not mutation.may_load:
        with pytest.raises(ArtifactError):
            verify_folder(copy)
    else:
        try:
            verify_folder(copy)
            if not mutation.name.startswith("forge"):
                pd.testing.assert_frame_equal(mlflow_cf.load_model(copy).predict(ASKED, QUERY), answer)
        except ArtifactError:
            pass
    assert not list(copy.parent.rglob(RUN))


def test_unharmed_it_loads_and_leaves_nothing(copy, answer):
    before = small_loans.files(copy)
    checked = verify_folder(copy)
    assert (checked.files, checked.rows, checked.schema_version) == (len(before), small_loans.ROWS, 2)
    assert checked.bytes == sum((copy / name).stat().st_size for name in before)
    pd.testing.assert_frame_equal(mlflow_cf.load_model(copy).predict(ASKED, QUERY), answer)
    assert small_loans.files(copy) == before


def test_a_forger_can_reseal(copy):
    artifact_mutations.reseal(copy)
    verify_folder(copy)


@pytest.mark.parametrize("mutation", CHOSEN, ids=[mutation.name for mutation in CHOSEN])
def test_attacks(mutation, copy, answer):
    check(mutation, copy, answer)


@pytest.mark.parametrize("number", range(BY_CHANCE))
def test_damage_by_chance(number, copy, answer):
    check(random_damage(np.random.default_rng(number), copy), copy, answer)


def test_what_may_differ_in_mlmodel(copy):
    """Every single field but these is covered: what MLflow assigns when it logs, and the manifest's own digest."""
    assert sorted(artifact_mutations.ASSIGNED) == [
        "artifact_path",
        "model_id",
        "model_size_bytes",
        "model_uuid",
        "run_id",
        "utc_time_created",
    ]
    assert json.loads((copy / "counterfactual" / "manifest.json").read_text())["mlmodel_sha256"] == (
        artifact_mutations.restated(copy)
    )
