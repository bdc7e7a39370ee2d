"""How strict a promise must be to be kept: tried on halves of the rows when a model is logged.

Bootstraps of the same rows share what these rows have in common by chance, and a search for the nearest answer leans on
it. That does not matter for most models, and breaks the promise for those that follow single rows of noisy data. So the
promise is tried: a model learns from one half of the rows, and its answers are shown to models that have learned from
the other half; then the other way round. If fewer of these accept them than was promised, the next step is tried. Draws
of fewer rows differ more, and with a margin each retrained model must be surer. Halves have more chance in them than
all rows do, so that a promise that is kept there errs on the safe side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.policy.survival import SurvivalWanted
from mlflow_cf.survival.retrain import Draws, Places, Refit, Retrained, Rows

FEWEST: Final = 200  # rows; of fewer, halves say more about their own size than about the promise
LATER: Final = 15  # models of the other half, each of a part of it: no two samples are alike
PART: Final = 0.8
_logger = logging.getLogger(__name__)


class Step(NamedTuple):
    """How strict a promise is: the share of the rows that are drawn, and the margin of the retrained models."""

    rows: float
    margin: float


# Shares of later models under which answers hold step by step, Credit, 2,000 rows: XGBoost .78, .78, .95, .98; logistic
# regression .89, .89, .93, .94; a forest .80, .99.
STEPS: Final = (Step(0.5, 0.0), Step(0.5, 0.1), Step(0.25, 0.1), Step(0.25, 0.2))


@dataclass(frozen=True, eq=False)
class Trial:
    """A model of one half of the rows, and models of the other half that its answers are shown to.

    Attributes:
        model: fitted to `own`.
        own: the half it has learned from; other: rows that it has not seen.
        drawn: its retrained models.
        later: models of the other half.
    """

    model: Any
    own: Rows
    other: Rows
    drawn: Retrained
    later: Sequence[Any]


# of a margin: the share (k,) of the later models of a trial under which each answer of its model holds
Showing = Callable[[float], NDArray[np.float64]]
Preparing = Callable[[Trial, SurvivalWanted], Showing]


def tried(
    refit: Refit, rows: Rows, wanted: SurvivalWanted, seed: int, preparing: Preparing, *, margins: bool
) -> tuple[SurvivalWanted, str]:
    """Return the least strict promise that halves of the rows keep, else the strictest, and what is said of it.

    Args:
        refit: the owner's estimator; rows: what it learns from.
        wanted: what is promised; seed: of all draws.
        preparing: returns what shows answers of a trial to its later models.
        margins: whether there are probabilities that a margin can be asked of.
    """
    steps = STEPS if margins else tuple(dict.fromkeys(step._replace(margin=0.0) for step in STEPS))
    if len(rows.labels) < FEWEST:
        return _with(wanted, steps[0]), f"not tried whether the promise is kept: fewer than {FEWEST} rows"
    try:
        return _tried(refit, rows, wanted, seed, preparing, steps)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  any estimator, any error; the message may quote rows
        return _with(wanted, steps[0]), f"not tried whether the promise is kept: {type(error).__name__}"


def _tried(
    refit: Refit, rows: Rows, wanted: SurvivalWanted, seed: int, preparing: Preparing, steps: Sequence[Step]
) -> tuple[SurvivalWanted, str]:
    pair = next(Draws(rows.labels, refit.classes, np.random.default_rng(seed)).pairs())
    shown: dict[float, list[Showing]] = {}
    share, chosen = 1.0, steps[0]
    answers = 0
    for chosen in steps:
        asked = _with(wanted, chosen)
        if chosen.rows not in shown:
            shown = {chosen.rows: [preparing(one, asked) for one in _trials(refit, rows, pair, asked, seed)]}
        held = np.concatenate([show(chosen.margin) for show in shown[chosen.rows]])
        answers, share = len(held), float(held.mean()) if len(held) else 1.0  # no answer breaks no promise
        _logger.info("survival: with %s, answers of half of the rows held under %.2f of later models", chosen, share)
        if share >= wanted.holds:
            break
    told = [_told(chosen, share, kept=share >= wanted.holds)]
    told += [] if answers else ["no row of the halves had an answer that could be tried"]
    return _with(wanted, chosen), "; ".join(note for note in told if note)


def _with(wanted: SurvivalWanted, step: Step) -> SurvivalWanted:
    return wanted.model_copy(update=step._asdict())


def _trials(refit: Refit, rows: Rows, pair: Sequence[Places], wanted: SurvivalWanted, seed: int) -> list[Trial]:
    """Return one trial for each half."""
    found = []
    for at, places in enumerate(pair):
        rng = np.random.default_rng([seed, at])
        own, other = rows.take(places), rows.take(pair[1 - at])
        draws = Draws(other.labels, refit.classes, rng).parts(PART)
        later = [refit.fit(other.take(next(draws)), rng) for _ in range(LATER)]
        found.append(Trial(refit.fit(own, rng), own, other, refit.drawn(own, wanted, rng), later))
    return found


def _told(chosen: Step, share: float, *, kept: bool) -> str:
    """Return in words what came of it; "" where the first step was enough."""
    strict = f"draws of {chosen.rows:.0%} of the rows, margin {chosen.margin:g}"
    if not kept:
        note = f"answers of half of the rows held under {share:.0%} of later models ({strict}); the promise may break"
        _logger.warning("survival: %s", note)
        return note
    return "" if chosen == STEPS[0] else f"{strict}: with less, halves of the rows broke the promise"
