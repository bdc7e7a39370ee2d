"""Sentences say what changes: in every language a reader gets the same changes back from them."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import many

from mlflow_cf.features.feature import Feature
from mlflow_cf.words.changes import Change
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.sentences import Speaker

FEATURES = {
    "income": Feature("income", "real", "float64", label="yearly income", unit="EUR"),
    "price": Feature("price", "real", "float64", unit="$"),
    "rate": Feature("rate", "real", "float64", unit="%"),
    "years": Feature("years", "integer", "int64", label="time in job", unit="year", units="years"),
    "num_open": Feature("num_open", "integer", "int64"),
    "job": Feature("job", "category", "object", label="what one does"),
    "owner": Feature("owner", "boolean", "bool"),
    "start": Feature("start", "date", "object"),
}
MARKS = {"en": (",", "."), "de": (".", ",")}
TRUTH = {"en": {"yes": True, "no": False, "missing": None}, "de": {"ja": True, "nein": False, "keine Angabe": None}}
CLAUSES = {
    "en": r"({name}) (rises|falls|changes|moves later,|moves earlier,) from (.+?) to (.+?)",
    "de": r"({name}) (steigt|sinkt|wechselt|wird später,|wird früher,) von (.+?) (?:auf|zu) (.+?)",
}
LINKS = {"en": "(?:, | and )", "de": "(?:, | und )"}
VERBS = {
    "en": {"rises": 1, "falls": -1, "moves later,": 1, "moves earlier,": -1, "changes": 0},
    "de": {"steigt": 1, "sinkt": -1, "wird später,": 1, "wird früher,": -1, "wechselt": 0},
}
WORD = st.text("abcdefgxyz", min_size=1, max_size=8).filter(lambda word: word not in ("yes", "no", "missing"))


def values(feature: Feature) -> st.SearchStrategy[Any]:
    made: dict[str, st.SearchStrategy[Any]] = {
        "real": st.floats(-1e7, 1e7) | st.sampled_from([0.1 + 0.2, 1e-7, 41000.0]),
        "integer": st.integers(-(10**9), 10**9),
        "category": WORD.filter(lambda word: word not in ("ja", "nein")),
        "boolean": st.booleans(),
        "date": st.dates().map(str),
    }
    return st.none() | made[feature.kind]


@st.composite
def answers(draw: st.DrawFn) -> tuple[Change, ...]:
    names = draw(st.lists(st.sampled_from(sorted(FEATURES)), min_size=1, unique=True))
    pairs = [(name, draw(values(FEATURES[name])), draw(values(FEATURES[name]))) for name in names]
    return tuple(Change(*pair) for pair in pairs if pair[1] is not pair[2] and pair[1] != pair[2])


def read(text: str, feature: Feature, language: Language) -> Any:
    """Return the value that a sentence tells of a feature."""
    if text in TRUTH[language] and feature.kind != "category":
        return TRUTH[language][text]
    if text in ("missing", "keine Angabe"):
        return None
    if feature.kind in ("category", "date"):
        return text
    thousands, decimal = MARKS[language]
    digits = re.sub(r"[^-+0-9.,e]|ea|E", "", re.sub(r"[A-Z a-df-z]+", "", text.replace("year", "")))
    number = digits.replace(thousands, "").replace(decimal, ".")
    return float(number) if feature.kind == "real" else int(number)


@pytest.mark.parametrize("language", ["en", "de"])
@settings(max_examples=many(100, 2_000))
@given(answers())
def test_a_sentence_parses_back_to_its_changes(language: Language, changes: tuple[Change, ...]) -> None:
    speaker = Speaker(language, FEATURES, "done")
    text = speaker.answer(changes, 1)
    assert text.endswith(": done")
    labels = {speaker.name(name): name for name in FEATURES}
    clause = CLAUSES[language].format(name="|".join(map(re.escape, labels)))
    found = re.findall(
        f"{clause}(?={LINKS[language]}(?:{'|'.join(map(re.escape, labels))}) |$)", text[: -len(": done")]
    )
    assert len(found) == len(changes)
    for (label, verb, old, new), change in zip(found, changes, strict=True):
        feature = FEATURES[labels[label]]
        assert labels[label] == change.feature
        told = [read(value, feature, language) for value in (old, new)]
        for said, value in zip(told, (change.old, change.new), strict=True):
            if isinstance(value, float):
                assert said == pytest.approx(value, rel=5.1e-6)
            else:
                assert said == value
                assert type(said) is type(value)
        towards = VERBS[language][verb]
        if towards:
            assert (change.new > change.old) == (towards > 0)
            assert told[0] != told[1]
        else:
            assert None in told or feature.kind in ("category", "boolean")
