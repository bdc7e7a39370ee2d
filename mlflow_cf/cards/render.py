"""Templates and styles, read once; tables, and HTML that stands by itself in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

CLASS: Final = "mlflow-cf"
MOST_LINES: Final = 100  # of a table


@cache
def environment() -> Environment:
    """Return what renders our templates: everything is escaped, and nothing may be undefined."""
    return Environment(
        loader=PackageLoader("mlflow_cf.cards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@cache
def macros() -> Any:
    """Return the macros of cards and tables."""
    return environment().get_template("cards.html.jinja").module


@cache
def style(*, cards: bool = True) -> Markup:
    """Return the styles of all that has the class ``mlflow-cf``, as one ``<style>``, with those of cards or without.

    They follow the reader's system. A page that switches by itself sets ``color-scheme: light`` or ``dark`` on the
    elements of the class, or an attribute ``data-theme`` with one of these words on whatever encloses them.
    """
    names = ("base.css", "cards.css") if cards else ("base.css",)
    folder = files("mlflow_cf.cards").joinpath("templates")
    text = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    return Markup(f"<style>{text}</style>")  # noqa: S704  files of ours


def page(*parts: Markup, cards: bool = False) -> str:
    """Return HTML of ours with its styles, those of cards if there are some, to stand by itself in a notebook."""
    return str(Markup('{}<div class="{}">{}</div>').format(style(cards=cards), CLASS, Markup().join(parts)))


def told(text: str) -> Markup:
    """Return a paragraph."""
    return Markup("<p>{}</p>").format(text)


def items(lines: Iterable[str]) -> Markup:
    """Return a list, or nothing of no lines."""
    listed = Markup().join(Markup("<li>{}</li>").format(line) for line in lines)
    return Markup("<ul>{}</ul>").format(listed) if listed else listed


def facts(blocks: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    """Return names with what is to be said of each, a line below the other."""
    rendered: Markup = macros().facts(list(blocks))
    return rendered


def table(frame: pd.DataFrame, *, index: bool = False) -> Markup:
    """Return a table, or its first hundred lines and how many more there are."""
    shown = frame.head(MOST_LINES)
    names = [_joined(name) for name in frame.columns]
    heads = list(shown.index) if index else []
    lines = [
        [*([_joined(heads[place])] if index else []), *map(_cell, values)]
        for place, values in enumerate(shown.itertuples(index=False, name=None))
    ]
    titles = [" ".join(str(name) for name in frame.index.names if name)] if index else []
    rendered: Markup = macros().table([*titles, *names], lines, len(titles))
    left = len(frame) - len(shown)
    return rendered + (told(f"and {left:,} more lines") if left else "")


def _joined(name: Any) -> str:
    return " ".join(str(part) for part in name if str(part)) if isinstance(name, tuple) else str(name)


def _cell(value: Any) -> str:
    """Return a value of a table: numbers with four digits, and nothing of what is missing."""
    if isinstance(value, bool | str):
        return str(value)
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
