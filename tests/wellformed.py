"""Reads HTML strictly: every element is closed in order, and what is text stays text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "hr", "img", "input", "link", "meta"}
OUTSIDE = ("http:", "https:", "//", "url(", "@import", "<script", "javascript:")


@dataclass(frozen=True)
class Read:
    """What a piece of HTML holds: its elements with their attributes, and its text."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for one, attributes in self.elements if one == name]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.open = Read(), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        self.read.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.read.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} was never opened"
        assert self.open.pop() == tag, f"{tag} is closed out of order"

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.read.texts.append(data)


def read(html: str) -> Read:
    """Return what HTML holds; it fails where an element is not closed, or closed out of order."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    assert not parser.open, f"never closed: {parser.open}"
    return parser.read


def needs_no_network(html: str) -> bool:
    """Whether nothing in a page is loaded from elsewhere, and nothing in it runs."""
    return not any(mark in html.lower() for mark in OUTSIDE)
