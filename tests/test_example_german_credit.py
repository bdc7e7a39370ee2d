"""CE-OCL's demonstration: what its parts must find, and the paper's figures from the paper's answers."""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from mlflow_cf.causal.function import structural_functions
from mlflow_cf.constraints import Constraints
from mlflow_cf.features import FeatureSpace

FOLDER = Path(__file__).resolve().parent.parent / "example_projects" / "german_credit"
NAMES = ("applicants", "parts", "demo")


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        modules = {name: __import__(name) for name in NAMES}
        yield modules
        for name in NAMES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def told(example, data_file):
    return example["applicants"].demonstration(str(data_file("german.csv").parent))


def found(example, told, name, time_limit_s=10.0):
    """Return a part's answer, all of it valid by the model itself."""
    answer = example["parts"].answer(told, example["parts"].PARTS[name], time_limit_s)
    assert answer.status == "found"
    rows = pd.DataFrame([one.row for one in answer.counterfactuals], columns=list(told.rows))
    assert (told.model.predict(rows) == 1).all()
    assert answer.diagnostics["solver"] == "optimal"
    return answer, [{change.feature: change.new for change in one.changes} for one in answer.counterfactuals]


def test_the_applicant_is_the_papers(told):
    assert told.model.decision_function(told.applicant)[0] == pytest.approx(-0.1340, abs=1e-4)
    values = told.applicant.iloc[0]
    assert values[["duration", "credit_amount", "installment_rate", "age"]].tolist() == [24, 1371, 4, 25]


def test_a_moves_four_numbers(example, told):
    answer, (changes,) = found(example, told, "A")
    assert example["parts"].objective(answer)[0] <= 0.0330
    expected = {"duration": 15.02, "credit_amount": -333.52, "installment_rate": 3.86, "age": 27.04}
    assert changes == pytest.approx(expected, rel=0.005)


def test_b_moves_one(example, told):
    answer, (changes,) = found(example, told, "B")
    assert changes == pytest.approx({"duration": 7.12}, abs=0.01)
    assert example["parts"].objective(answer)[0] <= 0.062


@pytest.mark.parametrize("name", ["C", "D"])
def test_c_and_d_find_three(example, told, name):
    _, changes = found(example, told, name)
    assert len({tuple(one) for one in changes}) == 3
    assert changes[0] == pytest.approx({"duration": 7.12}, abs=0.01)


def test_e_is_the_optimum_over_the_hull_and_the_papers_first(example, told):
    answer, changes = found(example, told, "E", 60.0)
    assert answer.diagnostics["manifold"]["points"] == 700
    assert answer.diagnostics["manifold"]["apart"] == pytest.approx([0.0] * 3, abs=1e-6)
    assert answer.diagnostics["objective"] == pytest.approx(answer.diagnostics["bound"], rel=1e-6)
    assert changes[0].pop("duration") == pytest.approx(22, abs=0.01)
    assert changes[0].pop("credit_amount") == pytest.approx(1283.52, abs=2)
    kept = {"checking_status": "no checking", "employment": "4<=X<7", "property": "life insurance"}
    assert changes[0] == kept


def test_f_moves_the_duration_by_what_the_amount_adds(example, told):
    parts = example["parts"]
    shut = parts.PARTS["F"]
    without = replace(shut, options={**shut.options, "enlarge": "never"}, count=1)
    assert parts.answer(told, without).status == "infeasible"
    answer, changes = found(example, told, "F", 60.0)
    assert answer.diagnostics["manifold"]["enlarged"]
    assert changes[0] == {"checking_status": "no checking", "employment": "4<=X<7", "property": "life insurance"}
    settings = Constraints.read({"causal": [parts.CAUSE]})
    space = FeatureSpace.infer(told.rows, {name: {"kind": "real"} for name in example["applicants"].NUMBERS})
    (function,) = structural_functions(settings, space, space.encode(told.rows))
    rows = space.encode(space.from_values([one.row for one in answer.counterfactuals]))
    own = space.encode(told.applicant)
    moved = rows[:, space.index["duration"]] - own[0, space.index["duration"]]
    assert moved == pytest.approx(function.values(rows) - function.values(own)[0], abs=0.1)


def test_the_nearest_row_of_the_hull_is_proved(example, told):
    part = example["parts"].Part("", {"manifold": "hull"}, inside=True)
    answer = example["parts"].answer(told, part)
    assert answer.counterfactuals[0].proof == "optimal"


def test_the_distance_is_minimised_by_default_and_proved(example, told):
    found = [example["parts"].answer(told, example["parts"].Part("", {"engine": e})) for e in ("auto", "milp")]
    assert [answer.counterfactuals[0].proof for answer in found] == ["optimal", "optimal"]
    assert found[0].counterfactuals[0].distance == pytest.approx(found[1].counterfactuals[0].distance, abs=1e-5)


def test_all_is_printed(example, told, data_file, capsys):
    del told
    example["demo"].main(["--data", str(data_file("german.csv").parent), "--parts", "AB"])
    printed = capsys.readouterr().out
    assert "score of -0.1340" in printed
    assert "published" in printed


def test_without_the_data_its_place_is_asked_for(example, tmp_path):
    with pytest.raises(SystemExit, match=r"german.csv is not in"):
        example["demo"].main(["--data", str(tmp_path)])
