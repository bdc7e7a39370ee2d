"""Statements: reasons of a reply in every language, from one table; nothing English is left in a German reply."""

import ast
import copy
import json
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
import mlflow_cf_flavors
from mlflow_cf.evaluation.measure.aggregates import fixed_rows
from mlflow_cf.request.ladder import _served
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.phrases import MARKS
from mlflow_cf.words.reason_phrases import REASON_PHRASES
from mlflow_cf.words.reasons import NOTHING_LEFT
from mlflow_cf.words.statements import Statement, in_language, joined, phrases_in, say

SOURCES = [path for one in (mlflow_cf, mlflow_cf_flavors) for path in Path(one.__file__).parent.rglob("*.py")]
ENGLISH = re.compile(
    r"\b(the|of|is|are|by|with|without|no|not|any|and|or|from|to|must|may|row|rows|than|were|that|which|this|model)\b"
)


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def keys_in_sources() -> set[str]:
    """Return all texts in the sources, one of which names each phrase."""
    texts: set[str] = set()
    for path in SOURCES:
        if not path.name.endswith("phrases.py"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts


def said_in_sources() -> Iterator[tuple[str, set[str]]]:
    """Yield the phrase and the names of the fills of every call of `say` that names its phrase."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                names = {one.arg for one in node.keywords if one.arg}
                options = [node.args[0].body, node.args[0].orelse] if isinstance(node.args[0], ast.IfExp) else node.args
                yield from ((one.value, names) for one in options if isinstance(one, ast.Constant))


class TestTheTable:
    @pytest.mark.parametrize("phrase", REASON_PHRASES)
    def test_every_language_has_every_phrase_and_fills_in_the_same(self, phrase: str) -> None:
        assert set(REASON_PHRASES[phrase]) == set(MARKS)
        assert len({frozenset(fields(text)) for text in REASON_PHRASES[phrase].values()}) == 1
        assert all(text.strip() for text in REASON_PHRASES[phrase].values())

    def test_no_key_stands_twice(self) -> None:
        tables = [path for path in SOURCES if path.name.endswith("_phrases.py")]
        nodes = [node for path in tables for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        dicts = [node for node in nodes if isinstance(node, ast.Dict)]
        keys = [ast.literal_eval(key) for one in dicts for key in one.keys if isinstance(key, ast.Constant)]
        phrases = [key for key in keys if key not in MARKS]
        assert sorted(phrases) == sorted(REASON_PHRASES)

    def test_every_phrase_is_said_somewhere(self) -> None:
        assert set(REASON_PHRASES) <= keys_in_sources()

    def test_what_is_said_is_filled_in(self) -> None:
        said = list(said_in_sources())
        assert len(said) > 100
        for phrase, names in said:
            assert fields(REASON_PHRASES[phrase]["en"]) == names, phrase

    def test_german_has_no_english_in_it(self) -> None:
        for phrase, told in REASON_PHRASES.items():
            german = re.sub(r"\{[^}]*\}|`[^`]*`|'[^']*'|\(margin\)|time_limit_s|explainer=", "", told["de"])
            assert not ENGLISH.search(german), phrase


class TestAStatement:
    def test_is_its_english_text(self) -> None:
        said = say("not_found", used=12_345)
        assert said == "no counterfactual among 12,345 rows tried"
        assert in_language(said, "de") == "keine Alternative unter 12.345 geprüften Zeilen"
        assert in_language(in_language(said, "de"), "en") == said

    def test_holds_others(self) -> None:
        inner = say("probability", least=0.25)
        said = say("rung", number=2, target=inner, reason=joined(NOTHING_LEFT, "as written"))
        assert list(phrases_in(said)) == ["rung", "probability", "several", "nothing_left"]
        assert in_language(said, "de") == (
            "Stufe 2 (Wahrscheinlichkeit 0,25): keine Zeile, die das Verfahren selbst zulässt, "
            "wird wie gewünscht vorhergesagt (bewiesen); as written"
        )

    @pytest.mark.parametrize(
        ("value", "english", "german"),
        [
            (46_500, "46,500", "46.500"),
            (0.5, "0.5", "0,5"),
            (0.1234567891, "0.1234567891", "0,1234567891"),
            (1234567.25, "1234567.25", "1234567,25"),
            (True, "yes", "ja"),
            (None, "missing", "keine Angabe"),
            ("2024-03-01", "2024-03-01", "2024-03-01"),
            ("and", "and", "and"),
        ],
    )
    def test_tells_values_without_losing_digits(self, value: Any, english: str, german: str) -> None:
        said = say("allow_level", feature="a", value=value)
        assert said == f"allow a to be {english}"
        assert in_language(said, "de") == f"für a auch {german} erlauben"

    def test_is_the_same_after_a_copy(self) -> None:
        said = in_language(say("contradict", causes=("a", say("values"))), "de")
        for again in (copy.deepcopy(said), pickle.loads(pickle.dumps(said))):  # noqa: S301  our own
            assert again == said == "a und die Werte der Vergleichsdaten widersprechen sich"
            assert in_language(again, "en") == "a and the background's values contradict each other"
        assert type(json.loads(json.dumps(said))) is str

    def test_several_of_them(self) -> None:
        assert joined("", "") == joined() == ""
        assert joined("", NOTHING_LEFT) is NOTHING_LEFT
        assert joined("a", "", "b") == "a; b"

    def test_other_text_stays_as_it_is(self) -> None:
        assert in_language("x_cf.a <= 3", "de") == "x_cf.a <= 3"
        assert list(phrases_in("x_cf.a <= 3")) == []


RNG = np.random.default_rng(3)
ROWS = pd.DataFrame(
    {
        "income": RNG.integers(10, 60, 240) * 1000,
        "debt": RNG.integers(0, 30, 240) * 500,
        "years": RNG.integers(0, 12, 240),
        "job": RNG.choice(["clerk", "cook", "nurse"], 240),
    }
)
NUMBERS = ["income", "debt", "years"]
GOOD = (ROWS.income - 2 * ROWS.debt + 1000 * ROWS.years > 24_000).astype(int)
BAD = ROWS[(ROWS.income < 25_000) & (GOOD == 0)].reset_index(drop=True)
TREE = DecisionTreeClassifier(max_depth=5, random_state=0).fit(ROWS[NUMBERS], GOOD)
BOOSTING = GradientBoostingClassifier(n_estimators=8, max_depth=3, random_state=0).fit(ROWS[NUMBERS], GOOD)
LINE = LogisticRegression(max_iter=2000).fit(ROWS[NUMBERS] / 1000, GOOD)
NEIGHBOURS = KNeighborsClassifier(5).fit(ROWS[NUMBERS], GOOD)


def wrapped(model: Any, **options: Any) -> mlflow_cf.ExplainedModel:
    table = ROWS[NUMBERS] / 1000 if model is LINE else ROWS[NUMBERS]
    return mlflow_cf.wrap(model, table, target=1, **options)


def asked_of(explained: mlflow_cf.ExplainedModel, rows: int = 4) -> pd.DataFrame:
    return explained.background[np.array(explained.judge.predict(explained.background)[0]) == 0].head(rows)


def in_german(explained: mlflow_cf.ExplainedModel, rows: pd.DataFrame | None = None, **options: Any) -> Explanations:
    """Return the answers in German, of the same statuses and with the same statements as in English."""
    table = asked_of(explained) if rows is None else rows
    english, german = (explained.explain(table, language=language, **options) for language in ("en", "de"))
    assert [one.status for one in english] == [one.status for one in german]
    for one, other in zip(english, german, strict=True):
        for before, after in zip(told_in(one), told_in(other), strict=True):
            if "stopped_by_clock" not in phrases_in(before):
                assert in_language(after, "en") == before
    return german


def told_in(one: mlflow_cf.Explanation) -> list[str]:
    return [
        one.reason,
        *(found.region_reason for found in one.counterfactuals),
        *(lever.reason for lever in one.levers),
        one.responsiveness.reason,
        one.reasons.reason,
        one.reasons.reference,
    ]


def is_german(one: mlflow_cf.Explanation) -> None:
    """Whether every text of a reply is a statement in German, or a sentence in German."""
    texts = told_in(one)
    assert all(isinstance(text, Statement) for text in texts if text)
    record = one.to_dict()
    assert [type(record["reason"]), type(record["reasons"]["reference"])] == [str, str]
    sentences = [*(found.text for found in one.counterfactuals), *(lever["text"] for lever in record["levers"])]
    for text in [*texts, *sentences]:
        left = re.sub(r"(policy\.)?(constraints|privacy|target)\.?[\w.\[\]]*|\([^()]*_cf[^()]*\)|'approved'", "", text)
        assert not ENGLISH.search(left), text


def reasons_in(answers: Explanations) -> str:
    return " | ".join(one.reason for one in answers)


@pytest.fixture(scope="module")
def tree() -> mlflow_cf.ExplainedModel:
    return wrapped(TREE)


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str]] = {
    "a limit": (
        TREE,
        {},
        {"constraints": {"ranges": {"income": [0, 12_000]}, "immutable": ["debt", "years"]}},
        "anheben",
    ),
    "everything fixed": (TREE, {}, {"constraints": {"immutable": NUMBERS}}, "kein Merkmal darf sich ändern"),
    "a rule": (
        NEIGHBOURS,
        {},
        {"constraints": {"rules": ["x_cf.income < x_cf.debt - 99999"]}, "max_evaluations": 5000},
        "ist für diese Zeile nicht erfüllbar",
    ),
    "steps": (
        TREE,
        {},
        {"constraints": {"relative": {name: {"up": 1, "down": 1} for name in NUMBERS}}, "why_not": "full"},
        "wechselt; ausgeschlossen durch",
    ),
    "too many must": (
        TREE,
        {},
        {"constraints": {"ranges": {"income": [55_000, 60_000], "debt": [14_000, 15_000]}, "max_changes": 1}},
        "Gruppen müssen sich ändern",
    ),
    "a high probability": (
        BOOSTING,
        {},
        {"target": {"label": 1, "min_probability": 0.999}},
        "nach einer Wahrscheinlichkeit von 0,",
    ),
    "without why": (
        TREE,
        {},
        {"constraints": {"ranges": {"income": [0, 12_000]}, "immutable": ["debt", "years"]}, "why_not": False},
        "",
    ),
    "few evaluations": (NEIGHBOURS, {}, {"max_evaluations": 5}, "Auswertungen"),
    "more than there are": (TREE, {}, {"count": 10, "constraints": {"max_changes": 1}}, "gewünschten Alternativen"),
    "near": (TREE, {}, {"count": 10, "diversity": "near", "constraints": {"immutable": ["debt", "years"]}}, ""),
    "not opened": (NEIGHBOURS, {}, {"certify": True}, "nicht bewiesen: das Modell ließ sich"),
    "another order": (TREE, {"explainer": "nearest_row"}, {"certify": True}, ""),
    "regions": (NEIGHBOURS, {}, {"region": True}, ""),
    "levers": (NEIGHBOURS, {}, {"levers": 2, "responsiveness": True}, ""),
    "reasons": (TREE, {}, {"reasons": True}, ""),
    "sampled reasons": (NEIGHBOURS, {}, {"reasons": {"reference": "favourable_median"}, "max_evaluations": 40}, ""),
    "a ladder": (LINE, {}, {"target": {"label": 1, "ladder": [0.5, 0.9, 1]}}, "Stufe 3 (Wahrscheinlichkeit 1)"),
    "background rows": (
        NEIGHBOURS,
        {"explainer": "nearest_row"},
        {"constraints": {"ranges": {"income": [0, 11_000]}, "rules": ["x_cf.debt < x.income - 99999"]}},
        "",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_replies_are_german(case: str) -> None:
    model, options, query, part = CASES[case]
    answers = in_german(wrapped(model, **options), **query)
    for one in answers:
        is_german(one)
    assert part in reasons_in(answers)


class TestStatuses:
    def test_a_row_that_cannot_be_coded(self, tree: mlflow_cf.ExplainedModel) -> None:
        rows = pd.concat([asked_of(tree, 1).astype(object), asked_of(tree, 1).astype(object).assign(income="lots")])
        answers = in_german(tree, rows)
        assert [one.status for one in answers] == ["found", "invalid"]
        is_german(answers[1])
        assert answers[1].reason == "income: 'lots' ist keine endliche ganze Zahl vom Typ int64"

    def test_a_search_that_fails(self, tree: mlflow_cf.ExplainedModel) -> None:
        class Fails:
            name, polish = "fails", True

            def search(self, *_: Any) -> Any:
                raise ZeroDivisionError

        (one,) = in_german(tree, asked_of(tree, 1), explainer=Fails())
        assert (one.status, one.reason) == ("invalid", "die Erklärung schlug fehl (ZeroDivisionError)")

    def test_as_wanted_and_not_asked(self, tree: mlflow_cf.ExplainedModel) -> None:
        good = tree.background[TREE.predict(tree.background) == 1].head(1)
        (already,) = in_german(tree, good, reasons=True)
        (skipped,) = in_german(tree, explain="none", rows=asked_of(tree, 1), reasons=True)
        assert (already.status, skipped.status) == ("already", "skipped")
        assert "spricht nichts gegen sie" in already.reasons.reason
        assert skipped.reasons.reason == "nach Erklärungen wurde nicht gefragt"
        assert tree.explain(good, language="de")[0].reason == ""

    def test_no_time_and_no_place(self, tree: mlflow_cf.ExplainedModel) -> None:
        (late,) = in_german(tree, asked_of(tree, 1), time_limit_s=1e-9)
        assert (late.status, late.reason) == ("budget", "vom Zeitlimit nach 0 Auswertungen beendet")
        with tree.admission.more(tree.admission.places):
            (busy,) = tree.request(asked_of(tree, 1), {"counterfactual": {"language": "de"}})
        assert busy.status == "busy"
        is_german(busy)

    def test_more_rows_than_are_explained(self) -> None:
        few = wrapped(TREE, limits={"explained_rows": 1}, language="de")
        answers = few.request(asked_of(few, 3), within_s=60)
        assert [one.status for one in answers] == ["found", "budget", "budget"]
        assert answers[2].reason.startswith("jenseits der 1 Zeilen")


def test_what_an_explainer_s_own_restrictions_leave_is_known_in_any_language() -> None:
    """Rows that are written as text count alike, and a ladder looks at the phrase."""
    told = [
        NOTHING_LEFT,
        in_language(NOTHING_LEFT, "de"),
        say("nothing_wanted"),
        in_language(say("nothing_wanted"), "de"),
    ]
    lines = pd.DataFrame({"status": "infeasible", "reason": [str(one) for one in told]})
    assert fixed_rows(lines).tolist() == [False, False, True, True]


@pytest.mark.parametrize("language", MARKS)
def test_a_ladder_goes_on_above_what_only_the_explainer_rules_out(language: Any) -> None:
    left, wanted = (in_language(one, language) for one in (NOTHING_LEFT, say("nothing_wanted")))
    higher = mlflow_cf.Target(label=1, min_probability=0.9)
    for reason, searched in ((left, True), (wanted, False), (joined(left, wanted), True)):
        below = mlflow_cf.Explanation("infeasible", reason, 0, 0.1)
        assert (_served([below], higher, lambda *_: False) is None) == searched


def test_levers_reasons_and_notices_have_the_policy_s_language() -> None:
    german = wrapped(NEIGHBOURS, language="de", constraints={"immutable": ["years"]})
    row = asked_of(german, 1)
    told = german.reasons(row)
    assert told.reference.startswith("das Mittel ")
    assert told.to_dict()["reference"] == told.reference
    sets = german.levers(row, 1)
    assert all(not one.reason or isinstance(one.reason, Statement) for one in sets)
    notice = german.notice(row)
    for text in (notice.text, notice.html):
        assert re.search("HAUPTGRÜNDE|Hauptgründe", text)
        assert not ENGLISH.search(re.sub("(?s)<style>.*?</style>|<[^>]*>", " ", text)), text
    assert "Notice" not in notice.text
    assert german.notice(row, language="en").text.startswith("NOTICE OF A DECISION")
    assert german.notice(row, letter=mlflow_cf.Letter(text="{{ wanted }}")).text == "1"
