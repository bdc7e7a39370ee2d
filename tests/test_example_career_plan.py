"""The career example: its generator, what its plans cost, and the whole story with a real server."""

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

import mlflow_cf

FOLDER = Path(__file__).resolve().parent.parent / "example_projects" / "career_plan"
NAMES = ("careers", "order", "train", "borrowed", "demo")
OF_CREDIT = ("progress", "server", "store")


@pytest.fixture(scope="module")
def example():
    """The example's modules; they are scripts that import each other, so they leave again afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])  # one of them adds a folder
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
        for name in (*NAMES, *OF_CREDIT):
            sys.modules.pop(name, None)


# What the policy's texts say, once more: action -> what it does, and what that takes.
def expected_effort(action: str, x: dict[str, Any], x_cf: dict[str, Any]) -> float:
    moved = {name: x_cf[name] - x[name] for name in ("education", "age", "savings", "hours_per_week")}
    match action:
        case "study":
            assert 1 <= moved["education"] <= 6
            assert moved["age"] == moved["education"]
            return moved["education"]
        case "change working hours":
            assert abs(moved["hours_per_week"]) <= 20
            return abs(moved["hours_per_week"]) / 5
        case "save money":
            assert 1_000 <= moved["savings"] <= 20_000
            return moved["savings"] / 5_000
        case "move":
            assert moved["savings"] == -6_000
            assert x["savings"] >= 6_000
            return 2
        case "become a specialist":
            assert (x["job"] != "manager", x_cf["job"]) == (True, "specialist")
            return 5
        case "become a manager":
            assert (x["job"], x_cf["job"]) == ("specialist", "manager")
            return 6
    raise AssertionError(action)


def expected_discount(x: dict[str, Any], x_cf: dict[str, Any]) -> float:
    helped = []
    if x["job"] != x_cf["job"]:
        region = {"capital": 0.7, "town": 0.9, "country": 1.0}[x["region"]]
        helped.append((1 - 0.07 * (x["education"] - 9) + region) / 2)
    if x["education"] != x_cf["education"]:
        hours = x["hours_per_week"]
        helped.append(0.6 if hours <= 20 else 0.8 if hours <= 30 else 1.0)
    return float(np.mean(helped)) if helped else 1.0


def check_plan(person: dict[str, Any], found: dict[str, Any]) -> None:
    """Every step does what its action does and costs what it should; together they lead to the counterfactual."""
    before, total = person, 0.0
    for step in found["plan"]:
        after = step["row"]
        assert step["effort"] == pytest.approx(expected_effort(step["action"], before, after))
        assert step["discount"] == pytest.approx(expected_discount(before, after))
        assert f"{step['step']}. {step['action']}: " in found["text"]
        total += step["effort"] * step["discount"]
        before = after
    assert before == found["row"]
    assert found["plan"][-1]["probability"] == pytest.approx(found["probability"])
    assert len(found["plan"]) == len({step["action"] for step in found["plan"]})
    if len(found["plan"]) > 1:
        told = re.search(r"\nin all ([\d.]+)$", found["text"])
        assert told
        assert float(told[1]) == pytest.approx(total, abs=0.0051)


def test_same_seed_same_careers(example):
    table = example.careers.careers(400)
    pd.testing.assert_frame_equal(example.careers.careers(400), table)
    assert not example.careers.careers(400, seed=1).equals(table)
    assert 0.15 < example.careers.careers()["well_paid"].mean() < 0.3


def test_careers_are_possible_ones(example):
    table = example.careers.careers()
    assert (table["education"] + 6 + table["experience"] <= table["age"]).all()
    assert table["education"].between(9, 20).all()
    assert (table["savings"] % 500 == 0).all()
    shares = table.groupby("job")["well_paid"].mean()
    assert shares["assistant"] < shares["specialist"] < shares["manager"]


@pytest.fixture(scope="module")
def told(example, tmp_path_factory):
    """The demo's run, what it printed, and every reply of the server."""
    replies = []
    with pytest.MonkeyPatch.context() as patch:
        ask = example.demo.ask

        def asked(address, body):
            replies.append((body, ask(address, body)))
            return replies[-1][1]

        printed = []
        patch.setattr(example.demo, "ask", asked)
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
        example.demo.main(["--rows", "1200", "--people", "4", "--generations", "12"])
    run = mlflow.last_active_run()
    return SimpleNamespace(run=run, replies=replies, printed="\n".join(printed))


def test_the_server_answers_with_plans_that_cost_what_they_should(told):
    ((body, reply),) = told.replies
    assert body["params"]["counterfactual"]["explainer"]["name"] == "cscf"
    split = body["dataframe_split"]
    people = [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
    assert [answer["status"] for answer in reply] == ["found", "found"]
    for person, answer in zip(people, reply, strict=True):
        assert answer["explainer"] == "cscf"
        assert answer["prediction"] == 0
        for found in answer["counterfactuals"]:
            assert found["prediction"] == 1
            check_plan(person, found)


def test_plans_are_printed_as_numbered_steps(told):
    assert re.search(r"\n  1\. .*\(effort [^)]*, probability [\w. ]+\)", told.printed)
    assert told.printed.count("well paid: 0") == 2


def test_figures_are_logged(told):
    for folder in ("plans", "plans_without_relationships"):
        files = {file.path: file.file_size for file in MlflowClient().list_artifacts(told.run.info.run_id, folder)}
        assert set(files) == {f"{folder}/sequence_flow.png", f"{folder}/position_effect.png"}
        assert min(files.values()) > 5_000


def test_relationships_put_the_studies_first(told):
    metrics = told.run.data.metrics
    assert metrics["cscf/studies_and_better_job"] >= 3
    assert metrics["cscf/studies_first"] == metrics["cscf/studies_and_better_job"]
    assert metrics["scf/studies_first"] < metrics["scf/studies_and_better_job"]


def test_orders_are_counted(example):
    def plan(*actions):
        steps = tuple(mlflow_cf.Step(at, action, 1, 1, {}) for at, action in enumerate(actions, start=1))
        return mlflow_cf.Counterfactual({}, (), 1, None, 0.0, 0, plan=steps)

    plans = (
        plan("study", "become a specialist"),
        plan("become a specialist", "study", "become a manager"),
        plan("study", "move"),
        plan("become a manager"),
    )
    assert example.order.studies_first([mlflow_cf.Explanation("found", "", 0, 0.1, plans)]) == (1, 2)
