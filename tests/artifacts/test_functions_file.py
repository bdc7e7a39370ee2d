"""Python functions in artifacts: one pickle, only if the owner allows it, never loaded before everything is checked."""

import copy
import hashlib
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import artifact_mutations
import cloudpickle
import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml

import mlflow_cf
from mlflow_cf.artifact.format import pickled
from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.artifact.publish.log import log_with_explainer
from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import ArtifactError, InputError

FILE = "counterfactual/functions.pkl"
SWITCH = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
SWITCHES = ("MLFLOW_ALLOW_MODEL_CODE_EXECUTION", SWITCH)
RNG = np.random.default_rng(0)
DATA = pd.DataFrame({"income": RNG.integers(10, 90, 200), "debt": RNG.integers(0, 50, 200)})
ROW = pd.DataFrame({"income": [20], "debt": [45]})
RATE = 10
RULE = """
class Rule:
    def predict(self, table, params=None):
        return ((table["income"] > 50) & (table["debt"] < 20)).astype(int)


def _load_pyfunc(path):
    return Rule()
"""


def effort(before: dict[str, Any], after: dict[str, Any]) -> float:
    return float(after["income"] - before["income"]) / RATE


CONSTRAINTS: dict[str, Any] = {
    "actions": [
        {"name": "earn", "feature": "income", "low": 0, "high": 80, "effort": effort},
        {
            "name": "pay",
            "feature": "debt",
            "low": -50,
            "high": 0,
            "effort": "x.debt - x_cf.debt",
            "before": ["x.income > 0", lambda state: state["income"] >= 5 * RATE],
            "after": [lambda before, after: after["debt"] < before["debt"]],
        },
    ],
    "relationships": {("income", "debt"): lambda state: 0.5 if state["income"] > 50 else 1.0},
}
PATHS = ["actions[0].effort", "actions[1].before[1]", "actions[1].after[0]", "relationships[0].factor"]


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a model that is stored without any pickle, so that MLflow's switch is ours alone to obey."""
    folder = tmp_path_factory.mktemp("rule")
    (folder / "income_and_debt_rule.py").write_text(RULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        options = {"loader_module": "income_and_debt_rule", "pip_requirements": ["pandas"]}
        mlflow.pyfunc.save_model(folder / "rule", **options)
        yield folder / "rule"


def save(inner: Path, folder: Path, constraints: Any = CONSTRAINTS, *, allow_functions: bool = True) -> Path:
    options = {"target": 1, "output": "label", "constraints": constraints, "allow_functions": allow_functions}
    mlflow_cf.save_model(str(inner), folder, DATA, **options, validate="here")  # its functions are those of this module
    return folder


@pytest.fixture(scope="module")
def saved(inner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(inner, tmp_path_factory.mktemp("functions") / "saved")


@pytest.fixture
def copied(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # code that is run would leave its mark here
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def steps(explained: mlflow_cf.ExplainedModel) -> list[tuple[str, float, float]]:
    (answer,) = explained.explain(ROW, seed=0)
    return [(step.action, step.effort, step.discount) for step in answer.counterfactuals[0].plan]


class Marking:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (artifact_mutations.CODE,)


def forge(root: Path, functions: Any) -> None:
    raw = functions if isinstance(functions, bytes) else pickle.dumps(functions)
    artifact_mutations.forged("functions.pkl", raw)(root)


def unmarked(root: Path) -> bool:
    return not list(root.parent.rglob(artifact_mutations.RUN))


class TestSaving:
    def test_is_refused_unless_it_is_allowed(self, inner: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError) as error:
            save(inner, tmp_path / "model", allow_functions=False)
        assert error.value.message.splitlines() == [
            f"constraints.{path}: is a Python function, which can only be stored as pickle; "
            "pass allow_functions=True, or write it as PLAF text"
            for path in PATHS
        ]
        assert not (tmp_path / "model").exists()

    def test_what_cannot_be_pickled_is_named(self, inner: Path, tmp_path: Path) -> None:
        lock = Lock()
        held = {"name": "pay", "feature": "debt", "before": ["x.debt > 0", lambda _: lock.locked()]}
        with pytest.raises(InputError, match=r"constraints\.actions\[1\]\.before\[1\]: .* cannot be pickled .*lock"):
            save(inner, tmp_path / "model", {"actions": [CONSTRAINTS["actions"][0], held]})
        assert not (tmp_path / "model").exists()

    def test_what_is_too_large_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pickled, "MOST_BYTES", 10)
        with pytest.raises(InputError, match=r"constraints: functions that refer to [\d,]+ bytes, at most 10"):
            pickled.to_bytes({"actions[0].effort": effort})

    def test_the_policy_names_them(self, saved: Path) -> None:
        policy = yaml.safe_load((saved / "counterfactual" / "policy.yaml").read_text())
        assert policy["constraints"]["actions"][0]["effort"] == {"function": "effort"}
        assert policy["constraints"]["actions"][1]["before"] == ["x.income > 0", {"function": "<lambda>"}]
        assert policy["constraints"]["actions"][1]["effort"] == "x.debt - x_cf.debt"

    def test_the_manifest_seals_them(self, saved: Path) -> None:
        raw = (saved / FILE).read_bytes()
        told = json.loads((saved / "counterfactual" / "manifest.json").read_text())["files"][FILE]
        assert told == {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
        functions = cloudpickle.loads(raw)
        assert type(functions) is dict
        assert list(functions) == PATHS

    def test_the_artifact_asks_for_what_restores_them(self, saved: Path) -> None:
        assert f"cloudpickle=={cloudpickle.__version__}" in (saved / "requirements.txt").read_text().splitlines()

    def test_without_functions_there_is_no_file(self, inner: Path, tmp_path: Path) -> None:
        actions = [{"name": "earn", "feature": "income", "effort": "1"}]
        save(inner, tmp_path / "model", {"actions": actions})
        assert not (tmp_path / "model" / FILE).exists()
        assert "cloudpickle" not in (tmp_path / "model" / "requirements.txt").read_text()


class TestLoading:
    def test_plans_are_the_same(self, saved: Path) -> None:
        expected = steps(mlflow_cf.wrap(Rule(), DATA, target=1, output="label", constraints=CONSTRAINTS))
        loaded = mlflow_cf.load_model(saved)
        assert [(action, discount) for action, _, discount in expected] == [("earn", 1.0), ("pay", 0.5)]
        assert steps(loaded) == expected
        assert steps(copy.deepcopy(loaded)) == expected

    def test_served(self, saved: Path) -> None:
        served = mlflow.pyfunc.load_model(str(saved))
        (record,) = served.predict(ROW, params={"counterfactual": {"seed": 0}}).to_dict("records")
        assert [step["action"] for step in record["counterfactuals"][0]["plan"]] == ["earn", "pay"]
        for value in ({"function": "effort"}, "effort"):
            asked = {"actions": [{"name": "earn", "feature": "income", "effort": value}]}
            with pytest.raises(mlflow.MlflowException, match=r"constraints\.actions"):
                served.predict(ROW, params={"counterfactual": {"constraints": asked}})

    @pytest.mark.parametrize("switch", SWITCHES)
    def test_is_refused_where_mlflow_forbids_pickles(
        self, copied: Path, monkeypatch: pytest.MonkeyPatch, switch: str
    ) -> None:
        forge(copied, {path: Marking() for path in PATHS})
        monkeypatch.setenv(switch, "false")
        with pytest.raises(ArtifactError) as error:
            mlflow_cf.load_model(copied)
        assert error.value.message == (
            f"{FILE}: is a pickle with the policy's Python functions, and {switch} is not true; "
            "set it to true if you trust whoever could write this artifact"
        )
        assert unmarked(copied)

    def test_a_model_without_functions_needs_no_pickle(
        self, inner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SWITCH, "false")
        monkeypatch.setitem(sys.modules, "cloudpickle", None)  # importing it would fail
        actions = [{"name": "earn", "feature": "income", "effort": "1"}]
        save(inner, tmp_path / "model", {"actions": actions}, allow_functions=False)
        assert mlflow_cf.load_model(tmp_path / "model").policy.constraints.actions[0].effort == "1"

    def test_verifying_runs_nothing(self, copied: Path) -> None:
        forge(copied, {path: Marking() for path in PATHS})
        assert verify_folder(copied).rows == len(DATA)
        assert unmarked(copied)

    def test_the_digest_is_checked_first(self, copied: Path) -> None:
        (copied / FILE).write_bytes(pickle.dumps(Marking()).ljust((copied / FILE).stat().st_size, b"\0"))
        for read in (mlflow_cf.load_model, verify_folder):
            with pytest.raises(ArtifactError):
                read(copied)
        assert unmarked(copied)

    def test_another_file_that_was_altered_is_found_first(self, copied: Path) -> None:
        forge(copied, {path: Marking() for path in PATHS})
        artifact_mutations.flip(copied, "model/MLmodel", [8])
        with pytest.raises(ArtifactError):
            mlflow_cf.load_model(copied)
        assert unmarked(copied)

    @pytest.mark.parametrize(
        "functions",
        [
            {},
            dict.fromkeys(PATHS[1:], len),
            dict.fromkeys([*PATHS, "actions[0].before[0]"], len),
            dict.fromkeys([*PATHS[1:], 1], len),
            dict.fromkeys(PATHS, "x"),
            dict.fromkeys(PATHS, len),  # not of two states
            [effort] * 4,
            effort,
            None,
            b"",
            b"\x80",
            b"cno_such_module\nfunction\n.",
        ],
        ids=lambda given: str(given).split(" at 0x")[0],
    )
    def test_other_functions_than_the_policy_names(self, copied: Path, functions: Any) -> None:
        forge(copied, functions)
        verify_folder(copied)
        with pytest.raises(ArtifactError):
            mlflow_cf.load_model(copied)

    def test_a_policy_without_them(self, copied: Path) -> None:
        self.changed_policy(copied, lambda constraints: constraints.clear())
        with pytest.raises(ArtifactError, match=r"functions\.pkl: is not for the policy"):
            mlflow_cf.load_model(copied)

    def test_a_policy_alone(self, copied: Path) -> None:
        (copied / FILE).unlink()
        artifact_mutations.changed_manifest(lambda manifest: manifest["files"].pop(FILE) and None)(copied)
        with pytest.raises(ArtifactError, match=r"functions\.pkl: is missing for the policy"):
            mlflow_cf.load_model(copied)

    @pytest.mark.parametrize(
        "change",
        [
            lambda constraints: constraints.update({"actions": 3}),
            lambda constraints: constraints.update({"actions": ["x"]}),
            lambda constraints: constraints["actions"][0].update({"effects": ["income"]}),
            lambda constraints: constraints["actions"][0].update({"effort": {"function": 3}}),
            lambda constraints: constraints["actions"][0].update({"effort": {"function": "f", "more": 1}}),
            lambda constraints: constraints["actions"][0].update({"name": {"function": "f"}}),
            lambda constraints: constraints.update({"relationships": {"a": 1}}),
        ],
    )
    def test_forged_policies(self, copied: Path, change: Callable[[dict[str, Any]], object]) -> None:
        self.changed_policy(copied, change)
        for read in (mlflow_cf.load_model, verify_folder):
            with pytest.raises(ArtifactError):
                read(copied)

    def changed_policy(self, root: Path, change: Callable[[dict[str, Any]], object]) -> None:
        policy = yaml.safe_load((root / "counterfactual" / "policy.yaml").read_text())
        change(policy["constraints"])
        artifact_mutations.forged("policy.yaml", yaml.safe_dump(policy).encode())(root)

    def test_logged_anew_with_another_explainer(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found: list[Any] = []
        monkeypatch.setattr(
            mlflow_cf.artifact.publish.log.Publication,
            "publish",
            lambda _, staged, _account: found.append(steps(mlflow_cf.load_model(staged))),
        )
        log_with_explainer(saved, "exact", "again")
        assert [action for action, _, _ in found[0]] == ["earn", "pay"]


class Rule:
    """What the model inside says."""

    def __call__(self, rows: pd.DataFrame) -> Any:
        return ((rows["income"] > 50) & (rows["debt"] < 20)).to_numpy().astype(int)


def test_a_stand_in_is_never_called() -> None:
    with pytest.raises(RuntimeError, match="effort was not loaded"):
        pickled.StandIn("effort")({}, {})


def test_stand_ins_are_named_as_the_functions() -> None:
    plain = Constraints.read(CONSTRAINTS).to_dict()
    again = Constraints.read(pickled.without_functions({"constraints": copy.deepcopy(plain)})["constraints"])
    assert again.to_dict() == plain
