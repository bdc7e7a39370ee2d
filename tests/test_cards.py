"""Cards of explained rows: what they say, where they draw it, and that whatever they hold is only text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wellformed import needs_no_network, read

from mlflow_cf.cards import Pictures, card, definitions, page, style
from mlflow_cf.cards.pictures import EDGE, WIDTH
from mlflow_cf.features import FeatureSpace
from mlflow_cf.words.changes import Change, RegionSide, Step
from mlflow_cf.words.factors import Factor, Reasons
from mlflow_cf.words.result import (
    Counterfactual,
    Explanation,
    LeverSet,
    Optimum,
    Proof,
    Responsiveness,
    Share,
    Status,
)

RNG = np.random.default_rng(0)
ROWS = 300
TABLE = pd.DataFrame(
    {
        "income": RNG.integers(10, 90, ROWS) * 500,
        "job": RNG.choice(["office", "plant", "field"], ROWS, p=[0.7, 0.25, 0.05]),
        "rate": RNG.random(ROWS).round(3),
        "start": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, ROWS), unit="D"),
        "owner": RNG.random(ROWS) < 0.3,
        "savings": np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.integers(0, 50, ROWS) * 100.0),
        "grade": pd.Categorical(RNG.choice(["low", "mid", "top"], ROWS), ["low", "mid", "top"], ordered=True),
        "same": 1.0,
    }
)
SPACE = FeatureSpace.infer(TABLE, {"income": {"label": "yearly income", "unit": "EUR"}})
INLINE, SHARED = Pictures(SPACE.features), Pictures(SPACE.features, shared=True)
TWO = (Change("income", 41_000, 46_500), Change("job", "plant", "office"))
ROW = {"income": 46_500, "job": "office", "rate": 0.5, "start": "2021-01-01", "owner": True, "savings": 0.0}


def answer(changes: tuple[Change, ...] = TWO, **more: Any) -> Counterfactual:
    row = {**ROW, "grade": "mid", "same": 1.0, **{change.feature: change.new for change in changes}}
    told = {"proof": "optimal", "text": "income rises: the loan is approved", **more}
    return Counterfactual(row, changes, 1, 0.56, 0.0421, len(changes), **told)


def found(*answers: Counterfactual, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"status": "found", "reason": "", "prediction": 0, "probability": 0.31, **more}
    return Explanation(counterfactuals=answers or (answer(),), **told).to_dict()


class TestWhatItSays:
    def test_all_of_one_answer(self) -> None:
        told = read(card(found(), INLINE, heading="row 7")).text
        for part in (
            "row 7", "a change exists", "prediction 0", "probability of what is wanted 0.31", "probability 0.31 → 0.56",
            "income rises: the loan is approved", "yearly income41,000 EUR → 46,500 EUR", "jobplant → office",
            "proved nearest", "distance 0.0421",
        ):  # fmt: skip
            assert part in told

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"proof": "optimal", "bound": 0.04}, "proved nearest"),
            ({"proof": "bounded", "bound": 0.04}, "proved: nothing nearer than 0.04"),
            ({"proof": "bounded"}, "checked"),
            ({"proof": "none"}, "checked"),
            ({"proof": "none", "solver": Optimum("l2 + 10 * features", 3.0, 3.0, "optimal")}, "proved least l2 + 10"),
        ],
    )
    def test_proofs(self, more: dict[str, Any], words: str) -> None:
        assert words in read(card(found(answer(**more)), INLINE)).text

    @pytest.mark.parametrize(
        ("proof", "words"), [("optimal", "cheapest plan"), ("bounded", "no plan costs less than 4")]
    )
    def test_proofs_of_plans_are_about_costs(self, proof: Proof, words: str) -> None:
        record = found(answer(proof=proof, bound=4.0), explainer="cscf")
        assert words in read(card(record, INLINE)).text

    @pytest.mark.parametrize("status", Status.__args__)  # type: ignore[attr-defined]
    @pytest.mark.parametrize("language", ["en", "de"])
    def test_every_status_and_its_reason(self, status: Status, language: Any) -> None:
        plain = Explanation(status, "it is <so>", None, None).to_dict()
        told = read(card(plain, INLINE, language))
        assert "it is <so>" in told.text
        assert "probab" not in told.text
        assert not told.all("svg")
        assert len({read(card({**plain, "status": one}, INLINE, language)).text for one in Status.__args__}) == 8  # type: ignore[attr-defined]

    def test_plans_regions_and_rungs(self) -> None:
        steps = tuple(Step(number, "work", 1.0, 1.0, ROW) for number in (1, 2))
        side = RegionSide("income", 45_000, 60_000, (), maximal=True)
        text = "income rises: done\nit holds while income is more\n1. work: (effort 1)\n2. work: (effort 1)\nin all 2"
        told = read(card(found(answer(text=text, plan=steps, region=(side,), rung=2)), INLINE))
        assert told.text.index("it holds while") < told.text.index("1. work") < told.text.index("in all 2")
        assert len(told.all("ol")) == 1
        assert "rung 2 of the ladder" in told.text
        none = answer(region_reason="no region: the model could not be opened for this row")
        assert "no region: the model" in read(card(found(none), INLINE)).text

    def test_reasons(self) -> None:
        factors = (
            Factor(("income",), ("41000",), 0.5, code="C07", text="Income insufficient"),
            Factor(("job", "savings"), ("plant", None), 0.2, protected=True),
        )
        told = read(card(found(reasons=Reasons("alarm", method="exact", factors=factors)), INLINE)).text
        assert "C07 Income insufficient" in told
        assert "job: plant, savings: missing" in told
        assert "protected and of weight: job, savings" in told

    def test_levers_and_shares(self) -> None:
        sets = [LeverSet(("income",), "found", counterfactual=answer()), LeverSet(("rate",), "infeasible")]
        shares = (Share(("income",), 0.31), Share(("rate",), 0.0), Share(("job",), 0.001))
        told = read(card(found(levers=tuple(sets), responsiveness=Responsiveness(True, shares)), INLINE)).text
        assert "What can do it aloneyearly income1 other sets cannot (proved)31% of the lawful changes" in told
        assert "< 1% of the lawful changes of job" in told
        assert "changes of rate" not in told
        nothing = found(levers=(sets[1],), responsiveness=Responsiveness(responsive=False))
        told = read(card(nothing, INLINE)).text
        assert "nothing by itself" in told
        assert "no lawful action turns the decision (proved)" in told

    def test_values_that_read_the_same_have_all_digits(self) -> None:
        told = read(card(found(answer((Change("rate", 0.12345671, 0.12345672),))), INLINE)).text
        assert "0.12345671 → 0.12345672" in told

    def test_many_changes_are_cut(self) -> None:
        many = tuple(Change(f"f{number}", 0.0, 1.0) for number in range(40))
        told = read(card(found(answer(many)), INLINE))
        assert "and 28 more changes" in told.text
        assert len(told.all("li")) == 13

    def test_in_german(self) -> None:
        told = read(card(found(), INLINE, "de")).text
        assert "41.000 EUR → 46.500 EUR" in told
        assert "bewiesen: die nächste" in told


class TestPictures:
    def test_dear_values_lie_further_right(self) -> None:
        for name, low, high in (
            ("income", 6_000, 40_000),
            ("start", "2020-02-01", "2022-01-01"),
            ("grade", "low", "top"),
        ):
            marked = INLINE.marked(name, low, high)
            assert marked is not None
            assert marked.old is not None
            assert marked.new is not None
            assert EDGE <= marked.old < marked.new <= WIDTH - EDGE

    def test_whole_numbers_lie_in_the_middle_of_their_bars(self) -> None:
        counts = pd.DataFrame({"children": np.repeat(np.arange(6), [60, 50, 40, 30, 20, 10])})
        drawing = Pictures(FeatureSpace.infer(counts).features).drawing("children")
        assert len(drawing.bars) == 6
        for number, bar in enumerate(drawing.bars):
            assert drawing.place(float(number)) == pytest.approx(bar.left + bar.width / 2, abs=0.1)

    def test_frequent_levels_come_first(self) -> None:
        drawing = INLINE.drawing("job")
        codes = {level: code for code, level in enumerate(SPACE["job"].levels)}
        assert [sorted(codes, key=lambda level: drawing.places[codes[level]])] == [["office", "plant", "field"]]

    def test_what_lies_beyond_the_axis_is_at_its_end(self) -> None:
        marked = INLINE.marked("income", -1e9, 1e9)
        assert marked is not None
        assert (marked.old, marked.new) == (EDGE, WIDTH - EDGE)

    def test_missing_unseen_and_unknown_values_have_no_mark(self) -> None:
        for name, old in (("savings", None), ("job", "sea")):
            marked = INLINE.marked(name, old, "plant" if name == "job" else 100.0)
            assert marked is not None
            assert marked.old is None
            assert marked.new is not None
        assert INLINE.marked("same", 1.0, 2.0) is None
        assert INLINE.marked("no such", 1.0, 2.0) is None

    def test_regions_are_bands(self) -> None:
        numbers = INLINE.marked("income", 41_000, 46_500, {"ends": [20_000, 30_000]})
        levels = INLINE.marked("job", "plant", "office", {"levels": ["office", "field", "sea"]})
        assert numbers is not None
        assert levels is not None
        ((left, width),) = numbers.bands
        assert 0 < left < left + width < WIDTH
        assert len(levels.bands) == 2
        told = read(card(found(answer(region=(RegionSide("job", None, None, ("office",), maximal=True),))), INLINE))
        assert [one.get("class") for one in told.all("path")].count("cf-band") == 1

    def test_few_rows_leave_no_trace(self) -> None:
        counts = {"office": 200, "plant": 95, "field": 5}
        table = pd.DataFrame({"job": np.repeat(list(counts), list(counts.values())), "x": [*np.zeros(295), *range(5)]})
        features = FeatureSpace.infer(table).features
        shown, hidden = (Pictures(features, least=least) for least in (0, 5))
        for name in ("job", "x"):
            assert hidden.drawing(name).path.count("M") < shown.drawing(name).path.count("M")
        assert hidden.drawing("x").high < shown.drawing("x").high
        assert Pictures(features, least=1_000).marked("x", 0.0, 1.0) is None

    def test_far_values_do_not_flatten_the_others(self) -> None:
        values = np.append(np.random.default_rng(0).normal(size=999), 1e6)
        assert Pictures(FeatureSpace.infer(pd.DataFrame({"x": values})).features).drawing("x").path.count("M") > 8

    @given(st.lists(st.floats(-1e150, 1e150), min_size=2, max_size=30), st.floats(-1e150, 1e150))
    def test_any_numbers_can_be_drawn(self, values: list[float], asked: float) -> None:
        if len(set(values)) < 2:
            return
        feature = replace(
            SPACE["rate"], values=np.unique(values), counts=np.unique(values, return_counts=True)[1].astype(float)
        )
        marked = Pictures([feature]).marked("rate", asked, values[0])
        if marked is not None:
            assert marked.new is not None
            assert EDGE <= marked.new <= WIDTH - EDGE
            assert "nan" not in marked.drawing.path
            assert "inf" not in marked.drawing.path

    def test_a_page_has_each_drawing_once(self) -> None:
        shown = read(definitions(SHARED))
        ids = [str(one["id"]) for one in shown.all("path")]
        assert len(set(ids)) == len(ids) == len(TABLE.columns)  # all but one feature that is constant, and a mark
        used = {str(one["href"]) for one in read(card(found(), SHARED)).all("use")}
        assert used <= {f"#{one}" for one in [*ids, "cf-from"]}
        assert len(read(definitions(SHARED, ["income"])).all("path")) == 2
        assert not read(card(found(), INLINE)).all("use")


def test_a_card_of_two_changes_takes_a_thousand_bytes() -> None:
    text = (
        "yearly income rises from 41,000 EUR to 46,500 EUR and job changes from plant to office: the loan is approved"
    )
    assert len(card(found(answer(text=text)), SHARED).encode()) <= 1_000


HOSTILE = [
    '<script>alert("1")</script>',
    "</style>",
    "a&b",
    "\"' onmouseover='x",
    "{{ 7 * 7 }}",
    "{% if %}",
    "\u202eabc",
    "\x00\n\r",
]
hostile = st.text(min_size=1, max_size=30) | st.sampled_from(HOSTILE)


@given(name=hostile, levels=st.lists(hostile, min_size=2, max_size=4, unique=True), told=hostile)
def test_whatever_it_holds_is_text(name: str, levels: list[str], told: str) -> None:
    feature = replace(
        SPACE["job"], name=name, label=told, levels=tuple(levels), values=np.arange(2.0), counts=np.ones(2) * 9
    )
    change = Change(name, levels[0], levels[1])
    region = (RegionSide(name, None, None, tuple(levels), maximal=True),)
    one = Counterfactual({name: levels[1]}, (change,), told, 0.5, 0.1, 1, text=f"{told}\n{told}", region=region)
    reasons = Reasons("alarm", method="exact", factors=(Factor((name,), (levels[0],), 1.0, code=told, protected=True),))
    levers = (LeverSet((name,), "found", counterfactual=one),)
    explained = Explanation("found", told, told, 0.1, (one,), levers=levers, reasons=reasons).to_dict()
    for shared in (False, True):
        pictures = Pictures([feature], shared=shared)
        html = page(definitions(pictures), card(explained, pictures, heading=told))
        shown = read(html)
        allowed = {"style", "div", "svg", "defs", "circle", "path", "use", "article", "p", "b", "bdi", "span"}
        assert shown.names() <= allowed | {"section", "ul", "ol", "li", "h4"}
        attributes = {key for _, some in shown.elements for key in some}
        assert not any(key.startswith("on") for key in attributes)
        assert "49" not in shown.text or "49" in told + name + "".join(levels)


def test_long_levels_are_cut_and_told_on_hovering() -> None:
    long = "ab " * 333 + "c"
    html = card(
        found(answer((Change("job", long, "office"),), text=f"job changes from {long} to office: done")), INLINE
    )
    shown = read(html)
    (title,) = [str(one["title"]) for one in shown.all("bdi") if "title" in one]
    assert title.endswith("…")
    assert title[:-1] == long[: len(title) - 1]
    assert len(html) < 3_000


def test_right_to_left_words_stand_by_themselves() -> None:
    arabic = "موظف"
    shown = read(card(found(answer((Change("job", arabic, "office"),), text=f"{arabic} → office")), INLINE))
    assert f"{arabic} → office" in shown.text
    assert len(shown.all("bdi")) == 3
    assert all(one.get("dir") == "auto" for one in shown.all("p") if set(one) - {"class"})


def test_a_record_of_an_unknown_feature_is_told_all_the_same() -> None:
    shown = read(card(found(), Pictures(())))
    assert "income41000 → 46,500" in shown.text
    assert not shown.all("path")[2:]


COLOURS = dict(re.findall(r"--cf-(\w+):light-dark\(([^)]*)\)", style()))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted(set(COLOURS) - {"page", "line", "bars"}))
def test_words_and_marks_stand_out(name: str, theme: int) -> None:
    """WCAG 2.2, 1.4.3 (AA): a contrast of 4.5 to 1."""
    low, high = sorted(luminance(COLOURS[one].split(",")[theme]) for one in (name, "page"))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_styles_are_small_and_need_no_network() -> None:
    assert len(style().encode()) < 5_000
    assert needs_no_network(page(card(found(), INLINE)))
    assert all(".mlflow-cf" in rule or ".cf-" in rule for rule in re.findall(r"(?:^|})([^{}@]+){", style()[7:-8]))
