"""Statements: texts of a reply that know their phrase and what fills it in, so that each language can tell them.

A statement is made where something is found out, and is English there. `in_language` tells it in the language of a
request once its reply is made. Plain text among the fills stays as it is: names, paths, and constraints as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any, Final, Self

from mlflow_cf.features.feature import Level
from mlflow_cf.words.phrases import MARKS, Language
from mlflow_cf.words.reason_phrases import REASON_PHRASES
from mlflow_cf.words.sentences import Speaker

# Text, statements, numbers, values of features, and lists of text.
Fill = str | int | float | bool | tuple[str, ...] | None
_LINKS: Final = {"c": ", ", "j": "; "}
_PLAIN: Final = frozenset((str, int, float))  # what Python's own formatting fills in as `_Filler` does in English
# Phrases without a conversion of ours.
_SIMPLE: Final = {key: one["en"] for key, one in REASON_PHRASES.items() if "!" not in one["en"]}


class Statement(str):
    """A statement of a reply: its text in one language, its phrase, and what fills that in.

    It is a string, and equals any string with the same text.

    Attributes:
        phrase: a key of `REASON_PHRASES`.
        fills: what stands in the braces of the phrase, by name.
    """

    __slots__ = ("fills", "phrase")
    phrase: str
    fills: Mapping[str, Fill]

    def __new__(cls, text: str, phrase: str, fills: Mapping[str, Fill]) -> Self:
        """Return the text of a phrase that is filled in."""
        statement = super().__new__(cls, text)
        statement.phrase, statement.fills = phrase, fills
        return statement

    def __getnewargs__(self) -> tuple[Any, ...]:  # explanations come back from helper processes
        return str(self), self.phrase, self.fills


def say(phrase: str, **fills: Fill) -> Statement:
    """Return a phrase, filled in, as a statement in English."""
    simple = _SIMPLE.get(phrase)
    if simple is not None and all(type(fill) in _PLAIN for fill in fills.values()):  # takes a fifth of the time
        return Statement(simple.format(**fills), phrase, fills)
    return _told(phrase, fills, "en")


def joined(*statements: str) -> str:
    """Return statements as one, with semicolons between them; those that are "" are left out."""
    some = tuple(filter(None, statements))
    return say("several", parts=some) if len(some) > 1 else some[0] if some else ""


def in_language(text: str, language: Language) -> str:
    """Return a statement in a language; any other text stays as it is."""
    return _told(text.phrase, text.fills, language) if isinstance(text, Statement) else text


def phrases_in(text: str) -> Iterator[str]:
    """Yield the phrase of a statement, then those of the statements that fill it in; nothing for any other text."""
    if isinstance(text, Statement):
        yield text.phrase
        for fill in text.fills.values():
            for part in fill if isinstance(fill, tuple) else (fill,):
                yield from phrases_in(part) if isinstance(part, str) else ()


def _told(phrase: str, fills: Mapping[str, Fill], language: Language) -> Statement:
    return Statement(_FILLERS[language].vformat(REASON_PHRASES[phrase][language], (), fills), phrase, fills)


class _Filler(Formatter):
    """Fills in the phrases of one language.

    Lists are joined by "and", with ``!c`` by commas, with ``!j`` by semicolons. A value of a feature is told with
    ``!v``, or with ``!f`` so that no digit is lost. Numbers have the marks of the language.
    """

    def __init__(self, language: Language) -> None:
        self.language, self.speaker = language, Speaker(language)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Return a fill as its phrase wants it."""
        match conversion:
            case "v":
                return self.speaker.value(value)
            case "f":
                return self._in_full(value)
            case "c" | "j":
                return self._linked(_LINKS[conversion], value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a fill as text."""
        if isinstance(value, tuple):
            return self._linked(REASON_PHRASES["and"][self.language], value)
        if isinstance(value, str):
            return in_language(value, self.language)
        return self.speaker.marked(format(value, format_spec))

    def _linked(self, link: str, parts: tuple[str, ...]) -> str:
        return link.join(in_language(part, self.language) for part in parts)

    def _in_full(self, value: Level | None) -> str:
        """Return a value; a number that a rounded one would not admit, with all its digits."""
        told = self.speaker.value(value)
        if not isinstance(value, float):
            return told
        thousands, decimal = MARKS[self.language]
        rounded = float(told.replace(thousands, "").replace(decimal, "."))
        return told if rounded == value else self.speaker.marked(repr(value))


_FILLERS: Final[dict[Language, _Filler]] = {language: _Filler(language) for language in MARKS}
