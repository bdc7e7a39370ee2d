"""The reference of the documentation: docstrings as Python has them, where decorators complete what the source says."""

import inspect
import re
from importlib import import_module

from griffe import Extension, Function, Object

SEVERAL = re.compile(r"^ *\w+(?:, \w+)+: ", re.MULTILINE)


class Completed(Extension):
    """Completes docstrings that refer to another class, and keeps names that are told together together."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Replace a docstring with a line such as ``(see `WrapOptions`)`` by the imported one, and join its names."""
        if not obj.docstring:
            return
        if isinstance(obj, Function) and "(see `" in obj.docstring.value:
            found: object = import_module(obj.module.path)
            for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
                found = getattr(found, name)
            obj.docstring.value = inspect.getdoc(found) or ""
        obj.docstring.value = SEVERAL.sub(joined, obj.docstring.value)


def joined(names: re.Match[str]) -> str:
    """Return the names of an entry with spaces that do not break: a plain one would begin the type of a name."""
    return names[0].rstrip(" ").replace(", ", ",\N{NO-BREAK SPACE}") + " "
