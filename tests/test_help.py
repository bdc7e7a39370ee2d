"""What `help` says: every argument is explained where users look."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import mlflow_cf
from mlflow_cf.explainers import EXPLAINERS
from mlflow_cf.policy import Query

CALLS: list[Callable[..., Any]] = [
    mlflow_cf.wrap,
    mlflow_cf.save_model,
    mlflow_cf.log_model,
    mlflow_cf.ExplainedModel.explain,
    mlflow_cf.ExplainedModel.predict,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_every_argument_is_explained(call: Callable[..., Any]) -> None:
    words = inspect.getdoc(call) or ""
    for name in set(inspect.signature(call).parameters) - {"self"}:
        assert re.search(rf"^    {name}: \S", words, re.MULTILINE), name
    assert "WrapOptions" not in words


@pytest.mark.parametrize("call", CALLS[:3], ids=lambda call: call.__name__)
def test_all_explainers_are_named(call: Callable[..., Any]) -> None:
    words = inspect.getdoc(call) or ""
    assert "(see" not in words
    assert re.findall(r'``"(\w+)"``', words.partition("Names:")[2].partition("\n    features:")[0]) == list(EXPLAINERS)


def test_a_request_is_told_its_options() -> None:
    words = inspect.getdoc(mlflow_cf.ExplainedModel.predict) or ""
    for name in Query.model_fields:
        assert re.search(rf"\b{name}\b", words), name


@pytest.mark.parametrize("name", mlflow_cf.__all__)
def test_what_is_public_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(mlflow_cf, name))
