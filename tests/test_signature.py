"""The hand-written signature: types per feature, what MLflow lets pass, and the shape of requests and replies."""

import json

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import PyFuncModel
from mlflow.types import ColSpec, Schema
from mlflow.types.schema import AnyType

from mlflow_cf.artifact.publish.signature import example_rows, inner_signature, signature_of
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.policy import Query

TABLE = pd.DataFrame(
    {
        "whole": [1, 2, 3],
        "small": np.array([1, 2, 3], dtype="uint8"),
        "whole, holes": [1.0, np.nan, 3.0],
        "Int64": pd.array([1, 2, 3], dtype="Int64"),
        "Int64, holes": pd.array([1, None, 3], dtype="Int64"),
        "real": [0.5, 1.0, 2.0],
        "single": np.array([0.5, 1.0, 2.0], dtype="float32"),
        "flag": [True, False, True],
        "flag, holes": pd.Series([True, None, False], dtype=object),
        "boolean, holes": pd.array([True, None, False], dtype="boolean"),
        "name": ["a", "b", "c"],
        "name, holes": pd.Series(["a", None, "c"], dtype=object),
        "string, holes": pd.array(["a", None, "c"], dtype="string"),
        "mixed": pd.Series(["a", 1, 2], dtype=object),
        "category": pd.Categorical(["x", "y", "x"]),
        "category of ints": pd.Categorical([3, 1, 3]),
        "category of ints, holes": pd.Categorical([3, None, 1]),
        "category of floats": pd.Categorical([0.5, 1.5, 0.5]),
        "day": pd.to_datetime(["2024-01-31", "2024-02-29", "2524-12-31"]).as_unit("s"),
        "moment, holes": pd.to_datetime(["2024-01-31T10:30", None, "2025-01-01T00:00"]),
        "abroad": pd.to_datetime(["2024-01-31", "2024-02-29", "2025-01-01"]).tz_localize("Europe/Berlin"),
        "written day": ["2024-01-31", "2024-02-29", "2025-01-01"],
    }
)
KINDS = {
    "whole": ("long", True),
    "small": ("long", True),
    "whole, holes": ("double", False),
    "Int64": ("long", True),
    "Int64, holes": ("double", False),
    "real": ("double", True),
    "single": ("double", True),
    "flag": ("boolean", True),
    "flag, holes": ("any", False),
    "boolean, holes": ("any", False),
    "name": ("string", True),
    "name, holes": ("string", False),
    "string, holes": ("string", False),
    "mixed": ("string", True),
    "category": ("string", True),
    "category of ints": ("long", True),
    "category of ints, holes": ("double", False),
    "category of floats": ("double", True),
    "day": ("any", True),
    "moment, holes": ("any", False),
    "abroad": ("any", True),
    "written day": ("string", True),
}
SPACE = FeatureSpace.infer(TABLE, {"written day": {"kind": "date"}})


def model(*classes):
    return OpenModel("test", classes, lambda rows: np.zeros(len(rows), dtype=int))


SIGNATURE = signature_of(SPACE, model(0, 1))


class Seen:
    """A model that shows what MLflow hands over."""

    def predict(self, table, params=None):
        self.table, self.params = table, params
        return table


def passed(table, params=None):
    """Return table and params as they come out of MLflow's check of a request."""
    seen = Seen()
    PyFuncModel(Model(signature=SIGNATURE), seen).predict(table, params=params)
    return seen.table, seen.params


def test_one_type_per_feature():
    assert {c["name"]: (c["type"], c["required"]) for c in SIGNATURE.inputs.to_dict()} == KINDS


def test_it_comes_back_from_mlmodel():
    assert ModelSignature.from_dict(json.loads(json.dumps(SIGNATURE.to_dict()))) == SIGNATURE


def test_example_rows_pass_and_mean_the_same():
    rows = example_rows(SPACE, TABLE)
    assert json.loads(rows.to_json())
    table, _ = passed(rows)
    np.testing.assert_array_equal(SPACE.encode(table), SPACE.encode(TABLE))


def test_missing_values_of_the_example_are_none():
    rows = example_rows(SPACE, TABLE).to_dict("records")
    assert [name for name, value in rows[1].items() if value is None] == [name for name in TABLE if "holes" in name]
    assert not any(isinstance(value, float) and np.isnan(value) for row in rows for value in row.values())


def test_columns_with_missing_values_may_be_left_out_and_others_may_not():
    rows = example_rows(SPACE, TABLE)
    required = [name for name in TABLE if "holes" not in name]
    assert list(passed(rows[required])[0].columns) == required
    for name in required:
        with pytest.raises(MlflowException, match="missing inputs"):
            passed(rows.drop(columns=name))


def test_a_missing_flag_stays_missing():
    rows = example_rows(SPACE, TABLE)
    rows["flag, holes"] = pd.Series([None, True, None], dtype=object)
    table, _ = passed(rows)
    assert table["flag, holes"].tolist() == [None, True, None]


def test_dates_come_through_http_as_they_were_sent():
    body = {"inputs": example_rows(SPACE, TABLE).to_dict("list")}
    parsed = json.loads(json.dumps(body))["inputs"]
    table, _ = passed(pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in parsed.items()}))
    np.testing.assert_array_equal(SPACE.encode(table), SPACE.encode(TABLE))


class TestParams:
    def test_one_object_with_all_options_of_a_query(self):
        (spec,) = SIGNATURE.params.params
        assert (spec.name, spec.default, spec.shape) == ("counterfactual", {}, None)
        assert {key.name for key in spec.dtype.properties} == set(Query.model_fields)
        assert not any(key.required for key in spec.dtype.properties)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"count": 3, "seed": None},
            {"constraints": {"ranges": {"real": [1, 2]}, "immutable": ["whole"]}, "time_limit_s": 1},
            {"target": "good"},
            {"target": {"label": 1, "min_probability": 0.6}},
        ],
    )
    def test_mlflow_hands_them_over_untouched(self, options):
        assert passed(example_rows(SPACE, TABLE), {"counterfactual": options})[1] == {"counterfactual": options}

    def test_no_params_is_an_empty_object(self):
        assert passed(example_rows(SPACE, TABLE))[1] == {"counterfactual": {}}

    @pytest.mark.parametrize("options", [{"cuont": 1}, None, [], "all"])
    def test_other_shapes_are_refused(self, options):
        with pytest.raises(MlflowException, match="counterfactual"):
            passed(example_rows(SPACE, TABLE), {"counterfactual": options})


class TestOutputs:
    def test_columns(self):
        outputs = {c["name"]: (c["type"], c["required"]) for c in SIGNATURE.outputs.to_dict()}
        assert outputs == {
            "prediction": ("long", True),
            "probability": ("double", False),
            "status": ("string", True),
            "reason": ("string", True),
            "counterfactuals": ("array", True),
            "levers": ("array", True),
            "responsiveness": ("object", True),
            "record": ("string", True),
            "reasons": ("object", True),
            "explainer": ("string", True),
            "seed": ("long", True),
            "evaluations": ("long", True),
            "judge_calls": ("long", True),
            "judged_rows": ("long", True),
        }

    @pytest.mark.parametrize(
        ("classes", "kind"),
        [
            ((0, 1), "long"),
            (("bad", "good"), "string"),
            ((False, True), "boolean"),
            ((0.0, 1.0), "double"),
            ((0, 0.5), "double"),
            ((0, "other"), "string"),
            ((), "double"),
        ],
    )
    def test_type_of_the_prediction(self, classes, kind):
        outputs = signature_of(SPACE, model(*classes)).outputs.input_dict()
        assert outputs["prediction"].type.name == kind
        found = {p.name: p.dtype for p in outputs["counterfactuals"].type.dtype.properties}
        assert found["prediction"].name == kind
        assert inner_signature(SPACE, model(*classes)).outputs.inputs[0].type.name == kind

    def test_a_counterfactual_holds_every_feature_in_its_own_type(self):
        found = {p.name: p for p in SIGNATURE.outputs.input_dict()["counterfactuals"].type.dtype.properties}
        row = {p.name: (p.dtype.name, p.required) for p in found["row"].dtype.properties}
        dates = ("day", "moment, holes", "abroad")
        plain = {name: "string" if name in dates else "boolean" for name, (kind, _) in KINDS.items() if kind == "any"}
        assert row == {name: (plain.get(name, kind), required) for name, (kind, required) in KINDS.items()}
        step = {p.name: p for p in found["plan"].dtype.dtype.properties}
        assert step["row"].dtype == found["row"].dtype
        solver = {p.name: (p.dtype.name, p.required) for p in found["solver"].dtype.properties}
        assert not found["solver"].required
        assert solver.pop("bound") == ("double", False)
        assert solver == {"objective": ("string", True), "value": ("double", True), "proof": ("string", True)}
        assert {p.name for p in found["changes"].dtype.dtype.properties} == {"feature", "from", "to"}
        assert step["changes"].dtype == found["changes"].dtype

    def test_nothing_is_any_and_nothing_a_date(self):
        text = json.dumps(SIGNATURE.outputs.to_dict())
        assert '"any"' not in text
        assert "datetime" not in text


class TestCompleted:
    INPUTS = Schema([ColSpec(AnyType() if kind == "any" else kind, name) for name, (kind, _) in KINDS.items()])

    def test_own_inputs_with_our_params_and_outputs(self):
        merged = signature_of(SPACE, model(0, 1), ModelSignature(self.INPUTS))
        assert merged.inputs == self.INPUTS
        assert (merged.outputs, merged.params) == (SIGNATURE.outputs, SIGNATURE.params)

    def test_own_outputs(self):
        outputs = Schema([ColSpec("string", "prediction")])
        assert signature_of(SPACE, model(0, 1), ModelSignature(self.INPUTS, outputs)).outputs == outputs
        assert signature_of(SPACE, model(0, 1), ModelSignature(None, outputs)).inputs == SIGNATURE.inputs

    @pytest.mark.parametrize("names", [["whole"], [*TABLE, "more"]])
    def test_other_columns_are_refused(self, names):
        with pytest.raises(InputError, match="signature: its inputs"):
            signature_of(SPACE, model(0, 1), ModelSignature(Schema([ColSpec("double", name) for name in names])))
