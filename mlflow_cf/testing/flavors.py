"""What a flavor module must offer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from mlflow_cf.model import Flavor

OPTIONAL: Final = frozenset({("save", "code_paths")})  # parameters that a flavor may have beside those of the protocol
FUNCTIONS: Final = tuple(name for name, method in vars(Flavor).items() if inspect.isfunction(method) and name[0] != "_")


def check_flavor(module: object) -> None:
    """Check that a module has the name and every function of the protocol `Flavor`, with the same parameters."""
    assert isinstance(getattr(module, "MLFLOW_FLAVOR", None), str), "no MLFLOW_FLAVOR"
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        assert callable(function), f"no function {name}"
        expected = parameters(getattr(Flavor, name))[1:]  # a module has no self
        found = [parameter for parameter in parameters(function) if (name, parameter[0]) not in OPTIONAL]
        assert found == expected, f"{name} has other parameters"


def parameters(function: Callable[..., Any]) -> list[tuple[str, str, object]]:
    """Return the name, the kind and the default of every parameter; how types are spelled is left to its author."""
    known = inspect.signature(function).parameters.values()
    return [(one.name, one.kind.description, one.default) for one in known]
