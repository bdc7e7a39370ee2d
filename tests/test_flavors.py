"""Every flavor module is what the core takes it for."""

import inspect
from importlib import import_module

import pytest

from mlflow_cf import InputError
from mlflow_cf.model import Flavor
from mlflow_cf.model.flavors import MODULES, flavor_named, flavor_of
from mlflow_cf.testing.flavors import check_flavor

FUNCTIONS = {name for name, member in vars(Flavor).items() if inspect.isfunction(member) and name[0] != "_"}


def test_the_protocol_names_what_a_flavor_can_be_asked():
    assert {"accepts", "requirements", "save", "load", "open"} <= FUNCTIONS


@pytest.mark.parametrize("name", MODULES)
def test_a_module_keeps_to_the_protocol(name):
    check_flavor(flavor_named(name))
    assert flavor_named(name).MLFLOW_FLAVOR == name
    assert flavor_named(name) is import_module(MODULES[name])


def test_nothing_is_opened_by_a_kind_nobody_knows():
    with pytest.raises(InputError, match="dict is not a kind of model known here"):
        flavor_of({})
