"""Every flavor module is what the core takes it for."""

import inspect
from importlib import import_module
from types import SimpleNamespace

import pytest

from mlflow_cf.model import Flavor
from mlflow_cf.model.flavors import MODULES, flavor_named
from mlflow_cf.testing.model_suite import FUNCTIONS, OPTIONAL, check_flavor


def test_the_protocol_names_what_a_flavor_is_asked():
    assert set(FUNCTIONS) == {"accepts", "requirements", "save", "load", "open"}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_keeps_to_the_protocol(name):
    module = flavor_named(name)
    assert (module, module.MLFLOW_FLAVOR) == (import_module(MODULES[name]), name)
    check_flavor(module)
    for function in FUNCTIONS:
        expected = inspect.signature(getattr(Flavor, function))
        ours = expected.replace(parameters=list(expected.parameters.values())[1:])  # a module has no self
        found = inspect.signature(getattr(module, function))
        kept = [one for one in found.parameters.values() if (function, one.name) not in OPTIONAL]
        assert found.replace(parameters=kept) == ours


def test_nothing_but_saving_may_be_told_of_more():
    whole = vars(flavor_named("sklearn"))
    assert "code_paths" in inspect.signature(whole["save"]).parameters
    with pytest.raises(AssertionError, match="load has other parameters"):
        check_flavor(SimpleNamespace(**{**whole, "load": lambda path, code_paths=(): (path, code_paths)}))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_module_that_does_not_is_named(name):
    whole = vars(flavor_named("python_function"))
    without = {key: value for key, value in whole.items() if key != name}
    with pytest.raises(AssertionError, match=f"no function {name}"):
        check_flavor(SimpleNamespace(**without))
    with pytest.raises(AssertionError, match=f"{name} has other parameters"):
        check_flavor(SimpleNamespace(**{**without, name: lambda: None}))
