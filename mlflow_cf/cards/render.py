"""Templates and styles, read once; HTML that stands by itself."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

CLASS: Final = "mlflow-cf"


@cache
def environment() -> Environment:
    """Return what renders our templates: everything is escaped, and nothing may be undefined."""
    loader = PackageLoader("mlflow_cf.cards")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@cache
def macros() -> Any:
    """Return the macros of cards."""
    return environment().get_template("cards.html.jinja").module


@cache
def style() -> Markup:
    """Return the styles of all that has the class ``mlflow-cf``, as one ``<style>``.

    They follow the reader's system. A page that switches by itself sets ``color-scheme: light`` or ``dark`` on the
    elements of the class, or an attribute ``data-theme`` with one of these words on whatever encloses them.
    """
    text = files("mlflow_cf.cards").joinpath("templates", "cards.css").read_text(encoding="utf-8")
    return Markup(f"<style>{text}</style>")  # noqa: S704  a file of ours


def page(*parts: Markup) -> Markup:
    """Return HTML of ours with its styles, to stand by itself in a notebook."""
    return Markup('{}<div class="{}">{}</div>').format(style(), CLASS, Markup().join(parts))
