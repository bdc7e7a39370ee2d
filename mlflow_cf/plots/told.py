"""The plans of explanations, as figures of them need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mlflow_cf.errors import InputError
from mlflow_cf.words.result import Counterfactual, Explanation

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; the last is for all others.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A")
MOST_ACTIONS: Final = len(COLOURS) - 1  # with a colour of their own
LONGEST_NAME: Final = 40  # characters shown


@dataclass(frozen=True)
class ToldStep:
    """One step of a plan.

    Attributes:
        position: from 1.
        kind: the number of its action among `ToldPlans.names`.
        gain: how much the probability of the wanted label rises by it; None if that is not known.
    """

    position: int
    kind: int
    gain: float | None


@dataclass(frozen=True)
class ToldPlans:
    """All plans of some explanations.

    Attributes:
        names: of the actions, those that come first on average first; of more than seven the rarest are one, named
            after their number.
        colours: of the actions, by their names alone, so that figures of the same actions have the same ones.
        plans: the steps of each.
    """

    names: tuple[str, ...]
    colours: tuple[str, ...]
    plans: tuple[tuple[ToldStep, ...], ...]

    @property
    def longest(self) -> int:
        """The number of steps of the longest plan."""
        return max(map(len, self.plans))


def told_plans(explanations: Iterable[Explanation]) -> ToldPlans:
    """Return the plans of all counterfactuals.

    Raises:
        InputError: something that is no explanation, or no plan in any.
    """
    if isinstance(explanations, Explanation):
        explanations = [explanations]
    with_plans = list[tuple[Explanation, Counterfactual]]()
    for number, explanation in enumerate(explanations):
        if not isinstance(explanation, Explanation):
            path, kind = f"explanations[{number}]", type(explanation).__name__
            raise InputError(path, f"a {kind}, not an explanation", "pass what `explain` of an explained model returns")
        with_plans += [(explanation, found) for found in explanation.counterfactuals if found.plan]
    if not with_plans:
        fix = "declare actions or relationships in the constraints, or take an explainer that plans, such as 'cscf'"
        raise InputError("explanations", "no answer has a plan", fix)
    often, order = _order([[step.action for step in found.plan] for _, found in with_plans])
    kinds = {action: order.index(action) if action in order else MOST_ACTIONS for action in often}
    rest = len(often) - len(order)
    names = [shortened(action) for action in order] + ([f"{rest} other actions"] if rest else [])
    colours = [COLOURS[sorted(order).index(action)] for action in order] + [COLOURS[-1]] * (rest > 0)
    plans = tuple(_steps(explanation, found, kinds) for explanation, found in with_plans)
    return ToldPlans(tuple(names), tuple(colours), plans)


def ink(fill: str) -> str:
    """Return the colour of letters on this one: black or white, by its luminance."""
    red, green, blue = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45 else "black"


def shortened(name: str) -> str:
    """Return a name as one short line."""
    line = " ".join(name.split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def literal(text: str) -> str:
    """Return text that matplotlib takes neither as a formula nor as a hidden label."""
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def _steps(explanation: Explanation, found: Counterfactual, kinds: dict[str, int]) -> tuple[ToldStep, ...]:
    known = [explanation.probability, *(step.probability for step in found.plan)]
    gains = [None if a is None or b is None else b - a for a, b in pairwise(known)]
    steps = zip(found.plan, gains, strict=True)
    return tuple(ToldStep(at, kinds[step.action], gain) for at, (step, gain) in enumerate(steps, start=1))


def _order(plans: list[list[str]]) -> tuple[Counter[str], list[str]]:
    """Return how often each action is done, and the most frequent ones, those that come first on average first."""
    often, places = Counter[str](), Counter[str]()
    for at, action in (one for plan in plans for one in enumerate(plan)):
        often[action] += 1
        places[action] += at
    frequent = [action for action, _ in often.most_common(MOST_ACTIONS)]
    return often, sorted(frequent, key=lambda action: places[action] / often[action])
