"""MLflow's switches for code that a model brings: their names differ between versions, and the strictest counts."""

from typing import Any

import pytest
from mlflow import environment_variables

from mlflow_cf.errors import ArtifactError
from mlflow_cf.model import switches

VALUES = {"true": True, "1": True, "TRUE": True, None: True, "false": False, "0": False, "no": False, "": False}


class Variable:
    """A variable of a later MLflow, which may have another default."""

    def __init__(self, default: bool) -> None:  # noqa: FBT001
        self.default = default

    def get(self) -> bool:
        return self.default


def allowed() -> bool:
    try:
        switches.check("file", "is a pickle", *switches.PICKLES)
    except ArtifactError:
        return False
    return True


@pytest.mark.parametrize("known", [(0,), (1,), (0, 1), ()], ids=["after", "before", "3.18", "neither"])
@pytest.mark.parametrize("new", VALUES)
@pytest.mark.parametrize("old", VALUES)
def test_both_must_allow_it_whichever_this_mlflow_knows(
    monkeypatch: pytest.MonkeyPatch, known: tuple[int, ...], new: str | None, old: str | None
) -> None:
    for number, (name, value) in enumerate(zip(switches.PICKLES, (new, old), strict=True)):
        monkeypatch.delattr(environment_variables, name, raising=False)
        monkeypatch.delenv(name, raising=False)
        if number in known:
            monkeypatch.setattr(environment_variables, name, Variable(default=True), raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert allowed() == (VALUES[new] and VALUES[old])


@pytest.mark.parametrize("name", switches.PICKLES)
def test_a_default_of_mlflows_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    any_variable: Any = Variable(default=False)
    monkeypatch.setattr(environment_variables, name, any_variable, raising=False)
    assert not allowed()
