"""The reference of the documentation: docstrings as Python has them, where decorators complete what the source says."""

import inspect
from importlib import import_module

from griffe import Extension, Function


class Completed(Extension):
    """Take the docstring from the imported function where the source's refers to that of another class."""

    def on_function(self, *, func: Function, **_: object) -> None:
        """Replace a docstring that has a line such as ``(see `WrapOptions`)``."""
        if func.docstring and "(see `" in func.docstring.value:
            found: object = import_module(func.module.path)
            for name in func.path.removeprefix(f"{func.module.path}.").split("."):
                found = getattr(found, name)
            func.docstring.value = inspect.getdoc(found) or ""
