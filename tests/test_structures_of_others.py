"""Structures and flavors of other packages that were written for an earlier version: what they lack is named."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model import OpenModel, flavors
from mlflow_cf.model.flavors import open_native
from mlflow_cf.options import WrapOptions
from mlflow_cf.structures.structure import Structure, lacking
from mlflow_cf.wrapping import assemble

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"age": RNG.integers(20, 60, 80), "income": RNG.integers(0, 40, 80)})
WANTED = (TABLE["income"] > 20).astype(int)
NAMES = [name for name in vars(Structure) if not name.startswith("_")]


class Earlier:
    """The structure of a model without some of its members."""

    def __init__(self, whole: Any, without: set[str]) -> None:
        for name in set(NAMES) - without:
            setattr(self, name, getattr(whole, name))


def opened(change: Callable[[Any], Any]) -> OpenModel:
    model = open_native(LogisticRegression().fit(TABLE, WANTED), rows=TABLE)
    compiled: Any = model.compile
    return replace(model, compile=lambda space, rows: change(compiled(space, rows)))


def note(change: Callable[[Any], Any]) -> str:
    return assemble(opened(change), TABLE, None, WrapOptions()).opened.note


@pytest.mark.parametrize("without", [{"ordered"}, {"pairs", "boxes"}, set(NAMES) - {"score", "encode"}])
def test_members_that_are_missing_are_named(without: set[str]) -> None:
    lost = [name for name in NAMES if name in without]
    expected = f"not opened, its structure lacks {', '.join(lost)}: it was written for another mlflow-cf"
    assert expected in note(lambda whole: Earlier(whole, without))


def test_parameters_that_are_missing_are_named() -> None:
    def older(whole: Any) -> Any:
        earlier: Any = Earlier(whole, {"sweep"})

        def sweep(rows: Any, values: Any) -> Any:
            return whole.sweep(rows, values)

        earlier.sweep = sweep
        return earlier

    assert "its structure lacks the parameter 'wanted' of sweep" in note(older)


def test_an_error_says_which_name_there_was_not() -> None:
    def raising(whole: Any) -> Any:
        return whole.layers_of_before

    assert "opening it failed (AttributeError: " in note(raising)
    assert "has no layers_of_before)" in note(raising)

    def values(whole: Any) -> Any:
        raise ValueError(f"{TABLE['income'].iloc[0]} is not known")

    assert "opening it failed (ValueError)" in note(values)  # its message may quote values


@pytest.mark.parametrize("model", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)], ids=["linear", "tree"])
def test_ours_lack_nothing(model: Any) -> None:
    explained = mlflow_cf.wrap(model.fit(TABLE, WANTED), TABLE)
    assert explained.opened.structure is not None
    assert lacking(explained.opened.structure) == []


def test_a_flavor_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("scorecard", "mlflow_cf.judge_of_before", flavors.ENTRY_POINTS)
    monkeypatch.setattr(flavors, "entry_points", lambda **_: [point])
    with pytest.raises(InputError) as error:
        mlflow_cf.wrap(object(), TABLE)
    assert error.value.message.startswith(
        "model: the module of the installed flavor 'scorecard' cannot be imported "
        "(No module named 'mlflow_cf.judge_of_before'); install what it needs"
    )
