"""Keep files and functions of our packages short: 500 lines a file, 40 lines a function below its signature.

Docstrings of functions do not count.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("mlflow_cf", "flavors/mlflow_cf_flavors")
FILE_LINES = 500
FUNCTION_LINES = 40

Function = ast.FunctionDef | ast.AsyncFunctionDef


def length(function: Function) -> int:
    """Return the function's lines below its signature, its docstring not counted."""
    told = ast.get_docstring(function) is not None
    above = function.body[0].end_lineno if told else function.body[0].lineno - 1
    return (function.end_lineno or function.lineno) - (above or function.lineno)


def too_long(path: Path) -> Iterator[str]:
    """Yield one line of text for the file if it is too long and for every function of it that is."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function) and length(node) > FUNCTION_LINES:
            yield f"{path}:{node.lineno}: {node.name} has {length(node)} lines, at most {FUNCTION_LINES}"


if __name__ == "__main__":
    found = [line for package in PACKAGES for path in sorted(Path(package).rglob("*.py")) for line in too_long(path)]
    sys.exit("\n".join(found) or None)
