"""Options of explainers in requests: what an explainer declares, within its bounds, each error with its path."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import pytest
from click.testing import CliRunner

import mlflow_cf
from mlflow_cf import GeCo, InputError, NearestRow, RandomSearch
from mlflow_cf.cli import main
from mlflow_cf.errors import InputErrors
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import Candidates, Facts
from mlflow_cf.explainers.registry import asked_explainer, explainer_of
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import NamedExplainer, Query
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame({"a": range(10), "b": range(0, 100, 10)})


def wrapped(explainer: Any = "geco") -> ExplainedModel:
    model = OpenModel("test", (0, 1), lambda rows: (rows["a"] > 4).to_numpy().astype(int))
    return assemble(model, FRAME, None, WrapOptions(explainer=explainer, privacy={"sample": "shown"}))


def asked(name: str, own: Any = None, **options: Any) -> Any:
    return asked_explainer(NamedExplainer(name=name, options=options), own or NearestRow())


class TestAsked:
    def test_by_name(self) -> None:
        assert asked("geco") == GeCo()

    def test_with_options(self) -> None:
        assert asked("geco", q=200, sweep=False, refine=False) == GeCo(q=200, sweep=False, refine=False)
        assert asked("random_search", copies=10) == RandomSearch(copies=10)

    def test_the_name_of_the_models_own_means_that(self) -> None:
        own = GeCo(q=5_000, m_init=3)
        assert asked("geco", own) is own
        assert asked("geco", own, m_init=4) == GeCo(q=5_000, m_init=4)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("geco", {"q": 5}, "explainer.options.q: input should be greater than 5, got 5"),
            ("geco", {"q": 10**9}, "explainer.options.q: input should be less than or equal to 1000, got 1000000000"),
            ("geco", {"q": 100.0}, "explainer.options.q: input should be a valid integer, got 100.0"),
            ("geco", {"q": None}, "explainer.options.q: input should be a valid integer, got None"),
            ("geco", {"sweep": "yes"}, "explainer.options.sweep: input should be True, False or 'auto', got 'yes'"),
            ("geco", {"m_int": 5}, "explainer.options.m_int: not an option of geco that a request may set; did you"),
            ("geco", {"zzz": "x"}, "explainer.options.zzz: not an option of geco that a request may set; options:"),
            ("random_search", {"copies": 10**6}, "explainer.options.copies: input should be less than or equal to"),
            ("exact", {"q": 9}, "explainer.options.q: not an option of exact that a request may set; log the model"),
            ("gecko", {"q": 9}, "explainer: no explainer is called 'gecko'; did you mean 'geco'?"),
        ],
        ids=str,
    )
    def test_refused(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            asked(name, **options)
        assert str(error.value).startswith(message)

    def test_all_errors_at_once(self) -> None:
        with pytest.raises(InputErrors) as error:
            asked("geco", q=1, m_mut=10**6, other=1)
        assert [each.path for each in error.value.errors] == [
            "explainer.options.q",
            "explainer.options.m_mut",
            "explainer.options.other",
        ]

    def test_an_explainer_that_declares_nothing_takes_nothing(self) -> None:
        @dataclass(frozen=True)
        class Plain:
            size: int = 1
            name: ClassVar[str] = "plain"
            polish: ClassVar[bool] = True

            def search(self, *_: Any) -> Candidates:
                raise NotImplementedError

        with pytest.raises(InputError, match=r"explainer\.options\.size: not an option of plain"):
            asked("plain", Plain(), size=2)


class TestSources:
    def test_the_owner_is_not_bound_by_what_requests_may_ask(self) -> None:
        made = wrapped({"name": "geco", "options": {"q": 5_000}})
        assert made.explainer == GeCo(q=5_000)
        assert made.describe()["explainer"]["options"]["q"] == 5_000

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ({"name": "geco", "options": {"q": 1}}, "explainer.options.q: 1 survivors are too few"),
            ({"name": "geco", "options": {"q": "1"}}, "explainer.options.q: '1' is no whole number"),
            ({"name": "random_search", "options": {"copies": "x"}}, "explainer.options.copies: 'x' is no whole number"),
            ({"name": "geco", "option": {}}, "explainer.option: not a known key; did you mean 'options'?"),
            ({"options": {}}, "explainer.name: field required"),
            ({"name": 3}, "explainer.name: input should be a valid string, got 3"),
        ],
        ids=str,
    )
    def test_malformed_ones(self, source: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            explainer_of(source)
        assert str(error.value).startswith(message)

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (5, "explainer: input should be a valid string, or an object with name and options, got 5"),
            ({"nam": "geco"}, "explainer.name: field required"),
            ({"name": "geco", "opts": {}}, "explainer.opts: not a known key; did you mean 'options'?"),
            ({"name": "geco", "options": 3}, "explainer.options: input should be a valid dictionary, got 3"),
        ],
        ids=str,
    )
    def test_malformed_requests(self, source: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            wrapped().predict(FRAME, {"counterfactual": {"explainer": source}})
        assert str(error.value).startswith(message)

    def test_in_a_request_and_in_python(self) -> None:
        source = {"name": "random_search", "options": {"copies": 7}}
        reply = wrapped().predict(FRAME[:1], {"counterfactual": {"explainer": source}})
        (found,) = wrapped().explain(FRAME[:1], explainer=source)
        assert reply.to_dict("records") == [found.to_dict()]
        assert found.explainer == "random_search"
        with pytest.raises(InputError, match=r"explainer\.options\.copies: input should be less"):
            wrapped().explain(FRAME[:1], explainer={"name": "random_search", "options": {"copies": 10**6}})


class TestCheck:
    def test_before_anything_is_asked(self) -> None:
        @dataclass(frozen=True)
        class Strict(NearestRow):
            def check(self, facts: Facts, count: int) -> None:
                assert facts.background.shape == (10, 2)
                if count > 2:
                    raise InputError("count", f"{count} is too many", "ask for 2")

        made = wrapped(Strict())
        assert made.explain(FRAME[:1], count=2)[0].status == "found"
        with pytest.raises(InputError, match="count: 3 is too many; ask for 2"):
            made.explain(FRAME[9:], count=3)

    def test_when_wrapping(self) -> None:
        with pytest.raises(InputError, match=r"explainer\.sweep: the model could not be opened"):
            wrapped(GeCo(sweep=True))

    @pytest.mark.parametrize("path", ["count", "explainer.q", "anything"])
    def test_an_error_of_a_search_is_that_of_its_row(self, path: str) -> None:
        @dataclass(frozen=True)
        class Late(NearestRow):
            def search(self, *_: Any) -> Candidates:
                raise InputError(path, "too late to say", "")

        found = wrapped().explain(FRAME, explainer=Late())
        assert [each.status for each in found] == ["invalid"] * 5 + ["already"] * 5


class TestSchema:
    def test_of_a_query(self) -> None:
        schema = Query.model_json_schema()
        forms = schema["properties"]["explainer"]["anyOf"]
        assert {"type": "string"} in forms
        assert {"$ref": "#/$defs/NamedExplainer"} in forms
        assert set(schema["$defs"]["NamedExplainer"]["properties"]) == {"name", "options"}

    def test_on_the_command_line_it_says_what_each_explainer_takes(self) -> None:
        schema = json.loads(CliRunner().invoke(main, ["schema"]).output)
        rules = {
            rule["if"]["properties"]["name"]["const"]: rule["then"]
            for rule in schema["$defs"]["NamedExplainer"]["allOf"]
        }
        assert set(rules) >= {"geco", "exact", "nearest_row", "random_search"}
        options = rules["geco"]["properties"]["options"]
        assert options["additionalProperties"] is False
        assert options["properties"]["q"] == {"type": "integer", "exclusiveMinimum": 5, "maximum": 1000}
        assert rules["exact"]["properties"]["options"]["properties"] == {}


def test_steps_are_public() -> None:
    assert mlflow_cf.Step(1, "go", 1.0, 1.0, {"a": 1}).to_dict()["row"] == {"a": 1}
