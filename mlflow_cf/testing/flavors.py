"""What a flavor module must offer."""

from __future__ import annotations

import inspect

from mlflow_cf.model import Flavor


def check_flavor(module: object) -> None:
    """Check that a module has every function of the protocol `Flavor`, with its very signature, and its name."""
    assert isinstance(getattr(module, "MLFLOW_FLAVOR", None), str), "no MLFLOW_FLAVOR"
    for name, method in vars(Flavor).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        expected = inspect.signature(method)
        parameters = list(expected.parameters.values())[1:]  # a module has no self
        function = getattr(module, name, None)
        assert inspect.isfunction(function), f"no function {name}"
        assert inspect.signature(function) == expected.replace(parameters=parameters), f"{name} has another signature"
