"""The documentation as a site: built without warnings, complete, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import mlflow_cf
from mlflow_cf.explainers import EXPLAINERS

ROOT = Path(__file__).parents[1]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
# of explainers, what a search is made of is told to those who write one: docs/development/explainer.md
SEARCHES = {"check", "learn", "bound", "search", "explore", "ends"}
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


def shown() -> dict[str, str]:
    """Return the names that pages of the reference show, with what stands below each."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE)
    return dict(re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.MULTILINE))


def test_the_reference_has_every_public_name() -> None:
    names = set(shown())
    assert {name for name in names if name.count(".") == 1} == {f"mlflow_cf.{name}" for name in mlflow_cf.__all__}


def fields(kind: type) -> list[str]:
    """Return the public fields of a class: of a dataclass, of pydantic's or of an enumeration."""
    declared = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    return [name for name in [*declared, *getattr(kind, "model_fields", ())] if not name.startswith("_")]


def functions() -> Iterator[tuple[str, Any]]:
    """Yield every public function, and every public method that a class itself has."""
    for name in sorted(mlflow_cf.__all__):
        found = getattr(mlflow_cf, name)
        if not inspect.isclass(found):
            yield name, found
            continue
        for key, value in vars(found).items():
            method = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            method = getattr(method, "func", method)  # cached properties
            if not key.startswith("_") and inspect.isfunction(method) and key not in SEARCHES:
                yield f"{name}.{key}", method


def said(words: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", words) is not None


@pytest.mark.parametrize("name", sorted(mlflow_cf.__all__))
def test_every_public_name_says_what_it_is_and_what_each_field_means(name: str) -> None:
    found = getattr(mlflow_cf, name)
    words = vars(found).get("__doc__", "") if inspect.isclass(found) else inspect.getdoc(found)
    assert words, "no docstring"
    assert words.split("\n")[0].rstrip().endswith((".", "!")), words
    if inspect.isclass(found):
        every = " ".join(inspect.getdoc(base) or "" for base in found.__mro__[:-1])
        assert not [field for field in fields(found) if not said(every, field)]


@pytest.mark.parametrize(
    ("name", "function"), list(functions()), ids=lambda what: what if isinstance(what, str) else ""
)
def test_every_public_function_says_what_each_parameter_means(name: str, function: Any) -> None:
    words = inspect.getdoc(function)
    assert words, f"{name} has no docstring"
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert not [parameter for parameter in sorted(parameters) if not said(words, parameter)], name


@pytest.mark.parametrize("kind", EXPLAINERS.values(), ids=EXPLAINERS)
def test_every_explainer_names_its_paper(kind: type) -> None:
    assert re.search(r"\b(19|20)\d\d\b", kind.__doc__ or "")


class Fetched(HTMLParser):
    """What a browser fetches of itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(FETCHED.get(tag, ""))
        if address:
            self.addresses.append(address)


@pytest.mark.system
def test_the_site_is_built_without_warnings_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    mine = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        parser = Fetched()
        parser.feed(text)
        assert not [address for address in parser.addresses if re.match(r"(\w+:)?//", address)], page
        assert "::: mlflow_cf" not in text
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text(encoding="utf-8")), style
