"""What a network does to its input, call by call, written down while it answers a few rows of zeros.

A mode of PyTorch hands every function to us that this thread calls, those of modules and of exported graphs alike, so
one way to read them serves all. Other threads are not disturbed, as they would be by a symbolic trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Tensor = Any  # PyTorch is imported when there is a network
Module = Any
ROWS: Final = 3  # of zeros


@dataclass(frozen=True, eq=False)
class Call:
    """One function that got something computed from the input.

    Attributes:
        name: of the function, without overload or the underscore of those that work in place.
        exported: whether it is an operator of an exported graph; some have other arguments than the function.
        arguments, named: what it got; result: what it returned.
        derived: which of the `arguments` are tensors that were computed from the input.
    """

    name: str
    exported: bool
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    result: Any
    derived: tuple[int, ...]

    def get(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument, by place or by name."""
        return self.arguments[place] if place < len(self.arguments) else self.named.get(name, default)


@dataclass(frozen=True, eq=False)
class Recording:
    """The calls of one run, in order.

    Attributes:
        start: the input (ROWS, features); end: the answer.
        calls: what was done to the input.
    """

    start: Tensor
    end: Tensor
    calls: Sequence[Call]


def record(module: Module, features: int, dtype: Any) -> Recording:
    """Run a network on rows of zeros in a `dtype` of PyTorch and return what it called.

    It is run as it is for answers, so it must be in evaluation mode; whatever it raises is raised.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    calls: list[Call] = []
    start = torch.zeros((ROWS, features), dtype=dtype)
    derived = {id(start)}

    class Recorder(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            places = tuple(place for place, value in enumerate(args) if _holds(value, derived))
            others = any(_holds(value, derived) for value in named.values())
            result = function(*args, **named)
            if places or others:
                name = str(getattr(function, "__name__", function))
                base = name.partition(".")[0]
                base = base if base.startswith("__") else base.removesuffix("_")
                calls.append(Call(base, "." in name, args, named, result, places))
                derived.update(id(tensor) for tensor in _tensors(result))
            return result

    with torch.no_grad(), Recorder():
        end = module(start)
    return Recording(start, end, calls)


def _holds(value: Any, derived: set[int]) -> bool:
    return any(id(tensor) in derived for tensor in _tensors(value))


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a value or in a list of values."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for one in value for tensor in _tensors(one)] if isinstance(value, tuple | list) else []
