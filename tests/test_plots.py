"""Figures of plans: what they count, laws of the flow, what is drawn, and bad input."""

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import mlflow_cf
from mlflow_cf import Counterfactual, Explanation, InputError, Step
from mlflow_cf.plots import (
    COLOURS,
    MOST_ACTIONS,
    effects,
    ink,
    position_effect,
    ribbons,
    sequence_flow,
    stacked,
    told_plans,
)

LEARN, WORK, MOVE = "add education", "change working hours", "move to the capital region"


def found(*steps: tuple[str, float | None]) -> Counterfactual:
    plan = tuple(Step(at, action, 1.0, 1.0, {}, likely) for at, (action, likely) in enumerate(steps, start=1))
    return Counterfactual({}, (), 1, None, 0.0, 0, plan=plan)


def explanation(*plans: Sequence[tuple[str, float | None]], before: float | None = 0.25) -> Explanation:
    return Explanation("found", "", 0, before, tuple(found(*plan) for plan in plans))


THREE = [
    explanation([(LEARN, 0.5), (WORK, 0.75)], [(LEARN, 0.5)]),
    explanation([(WORK, 0.25), (LEARN, 0.5), (MOVE, 1.0)], before=0.125),
    Explanation("already", "", 1, 0.9),
]


def test_steps_and_gains_are_told() -> None:
    told = told_plans(THREE)
    assert told.names == (LEARN, WORK, MOVE)
    assert told.longest == 3
    assert told.plans == (((0, 0.25), (1, 0.25)), ((0, 0.25),), ((1, 0.125), (0, 0.25), (2, 0.5)))


def test_flow_by_hand() -> None:
    told = told_plans(THREE)
    blocks = stacked(told)
    third, end = pytest.approx(1 / 3), len(told.names)
    assert [(block.position, block.kind, block.share) for block in blocks] == [
        (1, 0, pytest.approx(2 / 3)),
        (1, 1, third),
        (2, 0, third),
        (2, 1, third),
        (2, end, third),
        (3, 2, third),
        (3, end, third),
    ]
    moves = {(r.source.position, r.source.kind, r.target.kind): r.share for r in ribbons(told, blocks)}
    assert moves == {(1, 0, 1): third, (1, 0, end): third, (1, 1, 0): third, (2, 0, 2): third, (2, 1, end): third}


def test_effects_by_hand() -> None:
    known = effects(told_plans(THREE))
    assert known[0, 1].tolist() == [0.25, 0.25]
    assert set(known) == {(0, 1), (0, 2), (1, 1), (1, 2), (2, 3)}


plans = st.lists(st.lists(st.sampled_from("abcdefghijk"), min_size=1, max_size=6), min_size=1, max_size=20)


@given(plans)
def test_the_flow_loses_no_plan(actions: list[list[str]]) -> None:
    told = told_plans([explanation([(action, None) for action in plan]) for plan in actions])
    blocks = stacked(told)
    found = ribbons(told, blocks)
    for position in range(1, told.longest + 1):
        column = [block for block in blocks if block.position == position]
        there = sum(len(plan) >= position - 1 for plan in actions) / len(actions)
        assert math.fsum(block.share for block in column) == pytest.approx(there)
        for above, below in pairwise(column):
            assert above.top + above.share < below.top
    for block in blocks:
        leaving = [ribbon for ribbon in found if ribbon.source == block]
        entering = [ribbon for ribbon in found if ribbon.target == block]
        last = block.position == told.longest or block.kind == len(told.names)
        assert math.fsum(ribbon.share for ribbon in leaving) == pytest.approx(0 if last else block.share)
        assert math.fsum(ribbon.share for ribbon in entering) == pytest.approx(block.share if block.position > 1 else 0)
        assert all(ribbon.leaves + ribbon.share <= block.top + block.share + 1e-9 for ribbon in leaving)
        assert all(ribbon.enters + ribbon.share <= block.top + block.share + 1e-9 for ribbon in entering)


@given(plans)
def test_of_many_actions_the_rarest_are_one(actions: list[list[str]]) -> None:
    told = told_plans([explanation([(action, None) for action in plan]) for plan in actions])
    often = Counter(action for plan in actions for action in plan)
    rest = len(often) - MOST_ACTIONS
    assert len(told.names) == min(len(often), len(COLOURS))
    assert (told.names[-1] == f"{rest} other actions") == (rest > 0)
    shares = Counter(step.kind for plan in told.plans for step in plan)
    assert sum(shares.values()) == sum(often.values())
    named = {told.names[kind]: number for kind, number in shares.items() if kind < MOST_ACTIONS}
    assert all(often[name] == number for name, number in named.items())


chance = st.none() | st.floats(0, 1)


@given(st.lists(st.tuples(chance, st.lists(chance, min_size=1, max_size=4)), min_size=1, max_size=10))
def test_effects_are_the_gains_that_are_known(told: list[Any]) -> None:
    made = [explanation([("a", likely) for likely in after], before=before) for before, after in told]
    known = effects(told_plans(made))
    for position in range(1, 5):
        pairs = [
            ([before, *after][position - 1], after[position - 1]) for before, after in told if len(after) >= position
        ]
        gains = [b - a for a, b in pairs if a is not None and b is not None]
        assert ((0, position) in known) == bool(gains)
        if gains:
            assert known[0, position].tolist() == sorted(gains)


def texts(figure: Figure) -> list[str]:
    return [label.get_text() for axes in figure.axes for label in axes.texts]


def legend(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.legends[0].get_texts()]


def boxes(figure: Figure) -> list[Any]:
    """Return where the words in the panels, their titles and the legend are."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    words = [*figure.legends[0].get_texts(), *([figure._suptitle] if figure._suptitle else [])]
    for axes in figure.axes:
        words += [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
    return [word.get_window_extent(canvas.get_renderer()) for word in words if word.get_text()]


def thirty() -> list[Explanation]:
    rng = np.random.default_rng(0)
    names = [LEARN, WORK, MOVE, "change capital gain", "enlist", "wait years"]
    made = []
    for _ in range(30):
        actions = rng.permutation(names)[: rng.integers(1, 6)].tolist()
        made.append(explanation([(name, float(p)) for name, p in zip(actions, np.sort(rng.random(5)), strict=False)]))
    return made


@pytest.mark.parametrize("figure_of", [sequence_flow, position_effect])
@pytest.mark.parametrize(
    "explanations", [thirty(), THREE, [explanation([(LEARN, 0.5)])]], ids=["thirty", "three", "one"]
)
def test_no_words_lie_on_others_or_leave_the_figure(figure_of: Any, explanations: list[Explanation]) -> None:
    figure = figure_of(explanations)
    places = boxes(figure)
    assert not any(a.shrunk(0.9, 0.9).overlaps(b.shrunk(0.9, 0.9)) for a, b in combinations(places, 2))
    page = figure.bbox
    assert all(page.x0 <= place.x0 and place.x1 <= page.x1 for place in places)
    assert all(page.y0 <= place.y0 and place.y1 <= page.y1 for place in places)


def test_labels_of_blocks_lie_inside_them() -> None:
    figure = sequence_flow(thirty())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    blocks = [patch.get_window_extent() for patch in axes.patches if hasattr(patch, "get_width")]
    for label in axes.texts:
        place = label.get_window_extent(canvas.get_renderer())
        assert any(
            block.x0 <= place.x0 and place.x1 <= block.x1 and block.y0 <= place.y0 and place.y1 <= block.y1
            for block in blocks
        ), label.get_text()


def test_the_flow_names_actions_and_shares() -> None:
    figure = sequence_flow(THREE)
    assert figure.axes[0].get_title() == "The order of actions in 3 plans"
    assert legend(figure) == [LEARN, WORK, MOVE, "end of the plan"]
    assert texts(figure)[0] == "add education\n67%"
    assert "end\n33%" in texts(figure)


def test_the_effect_has_a_panel_for_every_action() -> None:
    figure = position_effect(THREE)
    shown_panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown_panels] == [LEARN, WORK, "move to the capital\nregion"]
    assert texts(figure) == ["n=2", "n=1", "n=1", "n=1", "n=1"]
    low, high = figure.axes[0].get_ylim()
    assert low <= 0
    assert high >= 0.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
@settings(max_examples=10)
def test_the_effect_shows_mean_and_deviation(likely: list[float]) -> None:
    panel = position_effect([explanation([(LEARN, after)], before=0.5) for after in likely]).axes[0]
    ((mean, _, (bar,)),) = [tuple(drawn) for drawn in panel.containers]
    gains = [after - 0.5 for after in likely]
    assert mean.get_ydata() == pytest.approx([np.mean(gains)])
    reach = [np.mean(gains) - np.std(gains), np.mean(gains) + np.std(gains)]
    assert bar.get_segments()[0][:, 1] == pytest.approx(reach)


def test_single_explanations_and_names_that_matplotlib_would_read_otherwise() -> None:
    names = ["_hidden $x_{1}$", "50 %\nof  it", "x" * 90, "xxxxxxxxxxxxx$x^$", r"\frac$$"]
    one = explanation([(name, 0.5) for name in names])
    for figure in (sequence_flow(one), position_effect(one)):
        FigureCanvasAgg(figure).draw()
    assert legend(sequence_flow(one)) == [
        r" _hidden \$x_{1}\$",
        "50 % of it",
        "x" * 39 + "…",
        r"xxxxxxxxxxxxx\$x^\$",
        r"\frac\$\$",
    ]


def test_long_plans_are_drawn_without_labels() -> None:
    steps = [("become as a similar row", at / 20) for at in range(20)]
    figure = sequence_flow([explanation(steps)])
    FigureCanvasAgg(figure).draw()
    assert texts(figure) == []


def test_the_same_actions_have_the_same_colours() -> None:
    one, other = told_plans(THREE), told_plans([explanation([(MOVE, 0.5), (WORK, 0.5), (LEARN, 0.6)])])
    assert one.names != other.names
    colours = [dict(zip(told.names, told.colours, strict=True)) for told in (one, other)]
    assert colours[0] == colours[1]
    assert len(set(colours[0].values())) == 3


def test_colours_of_letters_can_be_read() -> None:
    assert [ink(colour) for colour in ("#0072B2", "#F0E442", "#FFFFFF", "#000000")] == [
        "white",
        "black",
        "black",
        "white",
    ]


@pytest.mark.parametrize("figure_of", [sequence_flow, position_effect])
@pytest.mark.parametrize(
    ("explanations", "message"),
    [
        ([], "explanations: no answer has a plan; declare actions or relationships in the constraints"),
        ([Explanation("not_found", "", 0, 0.1)], "explanations: no answer has a plan"),
        ([THREE[0], {"status": "found"}], "explanations[1]: a dict, not an explanation"),
    ],
)
def test_without_plans_there_is_no_figure(figure_of: Any, explanations: list[Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        figure_of(explanations)
    assert message in str(error.value)


def test_without_probabilities_there_is_no_effect() -> None:
    silent = explanation([(LEARN, None), (WORK, None)])
    assert sequence_flow(silent)
    with pytest.raises(InputError, match="no plan tells the probability after its steps"):
        position_effect([silent])


@pytest.mark.system
def test_drawing_leaves_no_trace_and_importing_draws_nothing() -> None:
    code = (
        "import sys, mlflow_cf; before = 'matplotlib' in sys.modules; mlflow_cf.plots.sequence_flow; "
        "print(before, 'matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
    assert mlflow_cf.plots.sequence_flow is sequence_flow
