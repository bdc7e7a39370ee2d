"""The models that retraining may give as one requirement: so many of them must accept an answer.

They are opened once and become one structure, which is all that an artifact keeps of them. It scores, sweeps and bounds
all models together, and it is their judge: a retrained model is a draw, so that none of them has to be asked itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.constraints import Origin
from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, FeatureSpace, Floats
from mlflow_cf.goal import Requirement, Votes
from mlflow_cf.model.judge import Judge, Label, OpenModel, Outcome, Rows, table_of
from mlflow_cf.model.parity import Opened, open_structure
from mlflow_cf.policy.survival import WHERE, Survival
from mlflow_cf.structures import Layers, NotOpenedError, Structure
from mlflow_cf.structures.merged import merged
from mlflow_cf.structures.structure import linked
from mlflow_cf.survival.retrain import Retrained
from mlflow_cf.survival.shrinkage import shrinks, shrunk

ORIGIN = Origin("policy", "survival")
# Share of a number's variance that one row may make up. Credit, 2,000 rows, where 3 of 30 later logistic models weighed
# payments otherwise: .16 to .26 in three samples; Adult .10 at most, German .06, where promises were kept.
OUTLYING: Final = 1 / 8
SHRUNK: Final = "their weights are shrunk towards 0 as far as they may be chance"


@dataclass(frozen=True, eq=False, kw_only=True)
class ManyJudges(Judge):
    """The decisions of several models, by the structure that they have become.

    Attributes:
        structure: whose raw scores stand side by side; space: its features; models: how many there are.
    """

    structure: Structure
    space: FeatureSpace
    models: int

    def scores(self, rows: Rows) -> Floats:
        """Return the scores (m, models * classes) of rows (m, d), those of one model after the other."""
        if isinstance(rows, CodedTable) and rows.of(self.space):
            Z = rows.codes
        else:
            Z = self.space.encode_any(table_of(rows))
        sums = self.structure.sums([self.structure.encode(column, Z[:, column]) for column in range(Z.shape[1])])
        each = np.ascontiguousarray(sums).reshape(len(Z) * self.models, -1)
        return linked(each, self.structure.link).reshape(len(Z), -1)

    def predict(self, rows: Rows) -> tuple[list[Label], Outcome]:
        """Return no labels, for the models have several, and the scores of all."""
        return [], Outcome(np.full(len(rows), -1, dtype=np.intp), self.scores(rows))

    def outcome(self, rows: Rows) -> Outcome:
        """Return the scores of all models for rows (m, d)."""
        return self.predict(rows)[1]


@dataclass(frozen=True, eq=False)
class FutureModels:
    """Models that retraining may give, opened.

    Attributes:
        requirement: that all of them accept an answer; a policy says how many are enough.
        structure: all of them as one.
        note: what is said of them in `describe()`.
    """

    requirement: Requirement
    structure: Structure
    note: str = ""

    @classmethod
    def of(
        cls, structure: Structure, models: int, like: OpenModel, space: FeatureSpace, background: Floats, note: str = ""
    ) -> FutureModels:
        """Return models that have become one `structure`, with the labels of the explained model.

        Args:
            structure: with as many raw scores of each of the `models`.
            models: their number.
            like: the explained model, whose classes and kind of scores they have.
            space: its features; background: (n, d) coded rows.
            note: what is said of them in `describe()`.
        """
        plain = OpenModel(
            "survival", like.classes, _undecided, _undecided, score_kind=like.score_kind, tolerance=like.tolerance
        )
        judge = ManyJudges(plain, argmax_decides=False, structure=structure, space=space, models=models)
        said = f"{models} retrained models: {structure.kind}"
        opened = Opened(structure, f"{said}; {note}" if note else said, len(background))
        outcome = judge.outcome(space.decode(background))
        return cls(Requirement(ORIGIN, judge, outcome, opened, votes=Votes(models, models)), structure, note)

    @property
    def count(self) -> int:
        """How many models there are."""
        votes = self.requirement.votes
        return 0 if votes is None else votes.of

    def required(self, survival: Survival) -> Requirement:
        """Return the requirement that as many of the models accept an answer as a policy or request needs.

        Draws learn from the rows at hand; models that are given may know other levels than these.
        """
        opened = replace(self.requirement.opened, judging=survival.models != "given")
        return replace(self.requirement, opened=opened, votes=Votes(survival.needed, self.count), promise=survival)


def future_models(drawn: Retrained, like: OpenModel, space: FeatureSpace, background: Floats) -> FutureModels:
    """Open retrained models of an explained one on coded background rows (n, d), and make one structure of them.

    Raises:
        InputError: other classes or columns than the explained model has, or a model that is not opened.
    """
    table, structures = space.decode(background), list[Structure]()
    known, note = None, drawn.note
    for at, model in enumerate(drawn.models):
        judge, structure = _opened(at, model, like, space, (table, background), known)
        structures.append(structure)
        known = judge if drawn.alike else None
    try:
        together = merged(structures, space)
    except NotOpenedError as error:
        raise InputError(
            f"{WHERE}.models", f"they do not go together: {error.what}", "pass models of one kind"
        ) from error
    if drawn.chance is not None and shrinks(together, len(structures)):
        together = shrunk(together, space, background, len(structures), drawn.chance)
        note = f"{SHRUNK}; {note}" if note else SHRUNK
    return FutureModels.of(together, len(structures), like, space, background, note)


def outlying(structure: Layers, space: FeatureSpace, background: Floats) -> list[str]:
    """Return a warning for each number, as a linear model or network sees it, of whose variance one row makes up much.

    Such models differ with and without rows like that, and draws of the rows at hand have no others. Trees ask only
    which of two numbers is larger.
    """
    found = []
    for column, feature in enumerate(space.features):
        first = 0 if column == 0 else int(structure.first.stop[column - 1])
        entries = structure.encode(column, background[:, column])
        numbers = entries[:, structure.first.levels[first : first + entries.shape[1]] < 0]
        away = (numbers - numbers.mean(axis=0)) ** 2
        share = float((away.max(axis=0) / np.maximum(away.sum(axis=0), np.finfo(np.float64).tiny)).max(initial=0.0))
        if share > OUTLYING:
            found.append(
                f"survival: one row makes up {share:.0%} of the variance of {feature.name}; models of other samples "
                "may differ by more than draws of these rows show; transform it in the pipeline, as by its logarithm"
            )
    return found


def _opened(
    at: int,
    model: OpenModel,
    like: OpenModel,
    space: FeatureSpace,
    rows: tuple[pd.DataFrame, Floats],
    known: Judge | None,
) -> tuple[Judge, Structure]:
    """Return one retrained model, and what is inside it.

    Args:
        at, model: its number, and the model.
        like: the explained model.
        space: the features; rows: those of the background, as a table and coded.
        known: another fit of the same estimator, which decides in the same way.
    """
    path = f"{WHERE}.models[{at}]"
    if model.classes != like.classes:
        fact = f"predicts {list(model.classes)}, the explained model {list(like.classes)}"
        raise InputError(path, fact, "pass models with the same labels")
    if model.columns and list(model.columns) != list(space.columns):
        raise InputError(path, "takes other columns than the explained model", "pass models of the same columns")
    if known is None:
        judge, outcome = Judge.learn(model, rows[0])
    else:
        judge = known.of_another_fit(model)
        outcome = judge.outcome(rows[0])
    found = open_structure(judge, space, rows[1], outcome, briefly=known is not None)
    if found.structure is None:
        fact = f"cannot be opened ({found.note})"
        raise InputError(path, fact, "pass models that are (see the page about limits), or ask for a margin")
    return judge, found.structure


def _undecided(rows: pd.DataFrame) -> Floats:
    """Refuse to decide for several models at once."""
    raise TypeError(f"several models say several things of {len(rows)} rows")
