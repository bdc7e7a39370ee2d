"""How strict a promise must be to be kept: tried on halves of the rows when a model is logged.

Bootstraps of the same rows share what these rows have in common by chance, and a search for the nearest answer leans on
it. That does not matter for most models, and breaks the promise for those that follow single rows of noisy data. So the
promise is tried: a model learns from one half of the rows, and its answers are shown to models that have learned from
the other half; then the other way round. If fewer of these accept them than was promised, the next step is tried. Draws
of fewer rows differ more, and with a margin each retrained model must be surer. Halves have more chance in them than
all rows do, so that a promise that is kept there errs on the safe side. Where a margin is not enough, most of what a
model has learned from these rows is chance, and halves of them do not tell how much stricter is: the last step follows,
far stricter, with labels that are drawn as well (`labels`).

All answers of a linear model lean on the same few weights: they hold together under later models, or break together.
So a pair of halves says little of such a model, and several try it. Its draws are moved to where later weights are to
be expected (`shrinkage`), and a margin is the strictest step that it takes. Other models take that margin in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.policy.survival import Labels, SurvivalWanted
from mlflow_cf.survival.retrain import Refit, Retrained
from mlflow_cf.survival.rows import Draws, Places, Rows

FEWEST: Final = 200  # rows; of fewer, halves say more about their own size than about the promise
# Rows; halves of fewer break what all rows keep, and the last step would leave few answers: German, 375 rows, XGBoost
# with a margin of 0.1, four pairs of halves hold under .86, all rows under .98; after the last step 1 of 40 has one.
FEW: Final = 1_000
LATER: Final = 15  # models of the other half, each of a part of it: no two samples are alike
PART: Final = 0.8
_logger = logging.getLogger(__name__)


class Step(NamedTuple):
    """How strict a promise is: which draws of the rows there are (`SurvivalWanted`), and the margin of their models."""

    rows: float
    labels: Labels
    margin: float


PLAIN: Final = Step(0.5, "kept", 0.0)
MARGIN: Final = Step(0.5, "kept", 0.1)
DRAWN: Final = Step(0.25, "drawn", 0.3)
# The steps of linear models. Of 15 samples of 2,000 rows of Credit, answers hold step by step under .67 to 1 and .97 to
# 1 of later models, of 10 of German under .94 to 1 and .96 to 1, while those of their halves break.
OF_LINEAR: Final = (PLAIN, MARGIN)
# Those of others that tell probabilities. Without a margin, XGBoost on three samples each of Adult and German holds
# under .949 to .99 of later models, with it under .964 to .992, at a distance of .097 for .092 in the mean. On Credit,
# 2,000 rows, without, with it, and after the last step: a forest .80, .99; XGBoost on five samples .76 to .86, .80 to
# .88, .98 to .99. There a quarter of the rows and a margin of 0.3 do not help with the labels kept: .91 to .93 of three
# samples; with labels drawn and a margin of 0.2, one sample holds under .93.
OF_OTHERS: Final = (MARGIN, DRAWN)
WITHOUT_PROBABILITIES: Final = (PLAIN, Step(0.25, "kept", 0.0))  # neither margins nor chances of labels
# Of halves, at most. Of one of 15 samples of Credit, 2,000 rows, answers of two pairs of linear models held under .98
# of the later models, those of four under .89, and those of all rows under .86; of another, of XGBoost, .92, .89, .88.
PAIRS: Final = 4
SHORT: Final = 0.05  # of what is enough: with so much less, or more but for linear models, no further pair is asked
# Of the promise, with a margin: halves know less than all rows, and the last step costs most of the answers. XGBoost
# with a margin of 0.1, halves and then all rows: Adult .965 and .99, .955 and .96; Credit .75 and .80, .80 and .82, .85
# and .81, .89 and .88.
LACKING: Final = 0.02


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


class Showing(Protocol):
    """Shows answers of a trial's model to its later models."""

    @property
    def linear(self) -> bool:
        """Whether its retrained models are linear, and shrunk."""
        ...

    def held(self, margin: float) -> NDArray[np.float64]:
        """Return the share (k,) of the later models under which each answer with such a margin holds."""
        ...


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
    if len(rows.labels) < FEWEST:
        return _with(wanted, PLAIN), f"not tried whether the promise is kept: fewer than {FEWEST} rows"
    try:
        drawn = Draws(rows.labels, refit.classes, np.random.default_rng(seed)).pairs()
        halves = Halves(refit, rows, list(islice(drawn, PAIRS)), seed, preparing)
        return _tried(halves, wanted, margins=margins and refit.asks)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  any estimator, any error; the message may quote rows
        return _with(wanted, PLAIN), f"not tried whether the promise is kept: {type(error).__name__}"


def _tried(halves: Halves, wanted: SurvivalWanted, *, margins: bool) -> tuple[SurvivalWanted, str]:
    steps = _steps(halves, wanted) if margins else WITHOUT_PROBABILITIES
    answers, share, chosen = 0, 1.0, steps[0]
    for chosen in steps:
        answers, share = _held(halves, chosen, wanted)
        _logger.info("survival: with %s, answers of half of the rows held under %.2f of later models", chosen, share)
        if share >= halves.enough(chosen, wanted):
            break
    kept = share >= min(wanted.holds, halves.enough(chosen, wanted))
    told = [_told(chosen, share, kept=kept, first=chosen == steps[0])]
    told += [] if answers else ["no row of the halves had an answer that could be tried"]
    return _with(wanted, chosen), "; ".join(note for note in told if note)


def _steps(halves: Halves, wanted: SurvivalWanted) -> tuple[Step, ...]:
    """Return the steps of models that tell probabilities, as the first halves show them to be."""
    if halves.linear(PLAIN, wanted):
        return OF_LINEAR
    return OF_OTHERS if len(halves.rows.labels) >= FEW else OF_OTHERS[:1]


def _held(halves: Halves, step: Step, wanted: SurvivalWanted) -> tuple[int, float]:
    """Return how many answers were shown, and the share of later models under which they held."""
    held = np.empty(0)
    for pair in halves.shown(step, wanted):
        held = np.concatenate([held, *(one.held(step.margin) for one in pair)])
        lacks = halves.enough(step, wanted) - held.mean() if len(held) else 0.0
        if lacks > SHORT or (lacks < -SHORT and not halves.linear(step, wanted)):
            break
    return len(held), float(held.mean()) if len(held) else 1.0  # no answer breaks no promise


@dataclass(frozen=True, eq=False)
class Halves:
    """Pairs of halves of the rows, as positions, on which a promise is tried.

    Attributes:
        refit, rows: the estimator, and what it learns from.
        pairs: of halves.
        seed: of all draws; preparing: see `tried`.
    """

    refit: Refit
    rows: Rows
    pairs: Sequence[Sequence[Places]]
    seed: int
    preparing: Preparing
    _shown: dict[Step, list[list[Showing]]] = field(default_factory=dict)

    def shown(self, step: Step, wanted: SurvivalWanted) -> Iterator[list[Showing]]:
        """Yield what shows the answers of one pair after the other; fits are kept for steps with the same draws."""
        draws = step._replace(margin=0.0)
        known, wanted = self._shown.setdefault(draws, []), _with(wanted, draws)
        for number, pair in enumerate(self.pairs):
            if number == len(known):
                known.append([self.preparing(one, wanted) for one in self._trials(number, pair, wanted)])
            yield known[number]

    def enough(self, step: Step, wanted: SurvivalWanted) -> float:
        """Return the share of later models under which answers must hold.

        Answers of linear models hold or break together: those that hold under as many as promised in the mean break the
        promise of every other sample, and must hold under so many more. With a margin, those of others may lack some.
        """
        if self.linear(step, wanted):
            return (1.0 + wanted.holds) / 2.0
        return wanted.holds - (LACKING if step.margin else 0.0)

    def linear(self, step: Step, wanted: SurvivalWanted) -> bool:
        """Whether the retrained models of a step are linear, as the first halves show."""
        return any(one.linear for one in next(self.shown(step, wanted)))

    def _trials(self, number: int, pair: Sequence[Places], wanted: SurvivalWanted) -> list[Trial]:
        """Return one trial for each half."""
        found = []
        for at, places in enumerate(pair):
            rng = np.random.default_rng([self.seed, 2 * number + at])
            own, other = self.rows.take(places), self.rows.take(pair[1 - at])
            draws = Draws(other.labels, self.refit.classes, rng).parts(PART)
            later = [self.refit.fit(other.take(next(draws)), rng) for _ in range(LATER)]
            found.append(Trial(self.refit.fit(own, rng), own, other, self.refit.drawn(own, wanted, rng), later))
        return found


def _with(wanted: SurvivalWanted, step: Step) -> SurvivalWanted:
    return wanted.model_copy(update=step._asdict())


def _told(chosen: Step, share: float, *, kept: bool, first: bool) -> str:
    """Return in words what came of it; "" for no strictness at all. `first`: it is the least strict step."""
    other = " and labels" if chosen.labels == "drawn" else ""
    strict = f"draws of {chosen.rows:.0%} of the rows{other}, margin {chosen.margin:g}"
    if not kept:
        note = f"answers of half of the rows held under {share:.0%} of later models ({strict}); the promise may break"
        _logger.warning("survival: %s", note)
        return note
    if first:
        return strict if chosen.margin else ""
    return f"{strict}: with less, halves of the rows broke the promise, or nearly"
