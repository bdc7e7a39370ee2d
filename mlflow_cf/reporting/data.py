"""What a report says about explained rows, computed: counts, shares and means, without a word of how it looks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.reporting.groups import GROUP, column_of, order_of, spoken_group
from mlflow_cf.reporting.shapes import Bar, Dot, Dots, HeatMap, Histogram, Table, bars, percent, short
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.sentences import Speaker

LINES: Final = (
    "row", "status", "reason", "probability", "proof", "changed", "mixed", "n_changed",
)  # fmt: skip
STATUSES: Final[Mapping[str, str]] = {
    "found": "an answer",
    "already": "as wanted already",
    "infeasible": "no answer exists (proved)",
    "not_found": "none found, none ruled out",
    "budget": "stopped by a limit",
    "invalid": "cannot be explained",
    "busy": "not explained: too busy",
    "skipped": "not asked for",
}
NOT_ASKED: Final = ("already", "skipped")
PROOFS: Final[Mapping[str, str]] = {
    "optimal": "proved: nothing is nearer",
    "bounded": "proved up to a distance",
    "none": "checked, not proved nearest",
}
MOST_FEATURES, MOST_REASONS, MOST_GROUPS = 15, 10, 12  # shown
LEAST: Final = 10  # answers of a group that is compared with another
# what constraints are called, by their section; of those in braces each is about a feature
OBSTACLES: Final[Mapping[str, str]] = {
    "immutable": "{} must stay",
    "increasing": "{} may only rise",
    "decreasing": "{} may only fall",
    "ranges": "the range of {}",
    "relative": "how far {} may move",
    "levels": "which values {} may take",
    "forbidden": "forbidden changes of {}",
    "max_changes": "how many features may change",
    "rules": "{}",
    "actions": "the actions that there are",
    "k_anonymous": "rare combinations are withheld",
}
_PATH: Final = re.compile(r"\b(?:constraints|privacy)\.([a-z_]+)(\.|\[\d+\])?")


@dataclass(frozen=True, eq=False)
class Versions:
    """What a comparison adds: the versions on the same rows.

    Attributes:
        names: of the versions, oldest first; the rows of the report are those of `newest`.
        survival: the share of each version's answers that each version accepts.
        tables: what else is compared, by its title.
        failed: what was left out, and why.
    """

    names: tuple[str, ...]
    newest: str
    survival: HeatMap | None
    tables: Mapping[str, Table] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Material:
    """What a report is made of.

    Attributes:
        title: what the model is called.
        explained: the model, as its owner has it.
        lines: explainer -> one line per row with the columns `LINES` and one for each grouping; the winner's first.
        figures: means and counts: explainer, group ("" for all rows), metric, value, standard_error, queries.
        shown: place of a row -> its explanation by the winner, for the rows that have a card.
        common: the common changes that turn the most rows, as a table; None: they were not looked for.
        guarantee: what is proved of these.
        notes: what a reader should know.
        failures: explainers that could not do it, with the reason.
        count, seed: what was asked for.
        versions: the versions beside each other, where they were compared.
    """

    title: str
    explained: ExplainedModel
    lines: Mapping[str, pd.DataFrame]
    figures: pd.DataFrame
    shown: Mapping[int, Explanation]
    common: Table | None = None
    guarantee: str = ""
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    seed: int | None = None
    versions: Versions | None = None

    @property
    def winner(self) -> str:
        """The explainer whose answers are shown."""
        return next(iter(self.lines))

    @property
    def own(self) -> pd.DataFrame:
        """The lines of the winner."""
        return self.lines[self.winner]

    @cached_property
    def speaker(self) -> Speaker:
        """Knows what features are called."""
        return Speaker("en", {feature.name: feature for feature in self.explained.space.features})


@dataclass(frozen=True, eq=False)
class Findings:
    """What the winner's answers say; shares are of the rows that miss the target, unless others are named."""

    material: Material

    @cached_property
    def statuses(self) -> Counter[str]:
        """How many rows have each status."""
        return Counter(self.material.own["status"].tolist())

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.material.own)

    @property
    def missed(self) -> int:
        """How many rows miss the target, so that an answer was wanted."""
        return self.rows - sum(self.statuses[status] for status in NOT_ASKED)

    @property
    def found(self) -> int:
        """How many rows have an answer."""
        return self.statuses["found"]

    @property
    def fixed(self) -> int:
        """How many rows no lawful change turns, as is proved."""
        share, queries = self.figure("fixed_share")
        return round((share or 0.0) * queries)

    @cached_property
    def outcomes(self) -> tuple[Bar, ...]:
        """The rows by status."""
        return bars(list(STATUSES), list(STATUSES.values()), [self.statuses[status] for status in STATUSES])

    @cached_property
    def answered(self) -> pd.DataFrame:
        """The lines of rows with an answer."""
        own = self.material.own
        return own[own["status"] == "found"]

    @cached_property
    def proofs(self) -> tuple[Bar, ...]:
        """The answers by what is proved of them."""
        known = Counter(self.answered["proof"].tolist())
        return bars(list(PROOFS), list(PROOFS.values()), [known[proof] for proof in PROOFS])

    @cached_property
    def distances(self) -> Histogram | None:
        """How far the answers are; where a row has several, on average."""
        return Histogram.of(self.answered["mixed"].to_numpy(np.float64))

    @cached_property
    def changes(self) -> tuple[Bar, ...]:
        """How many features the nearest answers change."""
        known = Counter(map(len, self.answered["changed"]))
        sizes = sorted(known)
        labels = [f"{size} feature{'' if size == 1 else 's'}" for size in sizes]
        return bars([str(size) for size in sizes], labels, [known[size] for size in sizes])

    @cached_property
    def features(self) -> tuple[Bar, ...]:
        """What the nearest answers change most; shares are of the answers."""
        counts = Counter(name for changed in self.answered["changed"] for name in changed)
        places = self.material.explained.space.index
        most = sorted(counts.items(), key=lambda pair: (-pair[1], places.get(pair[0], 0)))[:MOST_FEATURES]
        name_of = self.material.speaker.name
        return tuple(Bar(name, name_of(name), count, count / max(self.found, 1)) for name, count in most)

    @cached_property
    def blocked(self) -> tuple[Bar, ...]:
        """Why rows that were asked about have no answer: by the constraints that their reasons name."""
        own = self.material.own
        told = own[~own["status"].isin(["found", *NOT_ASKED])]
        examples: dict[tuple[str, str], str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for status, reason in zip(told["status"], told["reason"], strict=True):
            key = status, obstacle(reason, self.material.speaker) or STATUSES[status]
            counts[key] += 1
            examples.setdefault(key, reason)
        whole = max(self.missed, 1)
        return tuple(
            Bar(
                status, label, count, count / whole, "" if examples[status, label] == label else examples[status, label]
            )
            for (status, label), count in counts.most_common(MOST_REASONS)
        )

    @property
    def unblocked(self) -> int:
        """How many rows without an answer stand behind none of the shown reasons."""
        return self.missed - self.found - sum(bar.count for bar in self.blocked)

    def column_words(self, group: str) -> str:
        """Return a group as it is told."""
        return spoken_group(group, self.columns)

    def figure(self, metric: str, group: str = "") -> tuple[float | None, int]:
        """Return a figure of the winner, and of how many rows it is."""
        known = self._of_winner.get((metric, group))
        return (None, 0) if known is None else (known.value, known.count)

    @cached_property
    def _of_winner(self) -> Mapping[tuple[str, str], Dot]:
        own = self.material.figures
        own = own[own["explainer"] == self.material.winner]
        columns = [own[name] for name in ("metric", "group", "value", "standard_error", "queries")]
        return {
            (metric, group): Dot(group, float(value), None if pd.isna(error) else float(error), int(queries))
            for metric, group, value, error, queries in zip(*columns, strict=True)
        }

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups of rows, such as ``sex.Female``: in a column bins by their values, others the largest first."""

        def place(group: str) -> tuple[str, float, bool, float]:
            column = column_of(group, self.columns)
            number, above, _ = order_of(group.removeprefix(f"{column}."))
            return column, number, above, -(self.figure("rows", group)[0] or 0.0)

        return tuple(sorted((group for metric, group in self._of_winner if metric == "rows" and group), key=place))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns by which rows are grouped."""
        names = self.material.own.columns
        return tuple(name.removeprefix(GROUP) for name in names if name.startswith(GROUP))

    @cached_property
    def burden(self) -> Dots | None:
        """The mean distance of the answers of each group; None where there are none."""
        known = [self._of_winner.get(("mixed", group)) for group in self.groups[:MOST_GROUPS]]
        dots = tuple(
            Dot(spoken_group(one.label, self.columns), one.value, one.error, one.count) for one in known if one
        )
        return Dots(dots) if dots else None

    @cached_property
    def extremes(self) -> tuple[Dot, Dot] | None:
        """The groups of one column with the nearest and the farthest answers, where these differ most."""
        best: tuple[Dot, Dot] | None = None
        for column in self.columns:
            known = [
                self._of_winner.get(("mixed", one)) for one in self.groups if column_of(one, self.columns) == column
            ]
            means = sorted((one for one in known if one and one.count >= LEAST), key=lambda one: one.value)
            if len(means) > 1 and (best is None or _ratio(means[0], means[-1]) > _ratio(*best)):
                best = means[0], means[-1]
        if best is None:
            return None
        near, far = (Dot(spoken_group(one.label, self.columns), one.value, one.error, one.count) for one in best)
        return near, far

    @cached_property
    def by_group(self) -> Table | None:
        """What each group gets."""
        if not self.groups:
            return None
        head = (
            "group",
            "rows",
            "miss the target",
            "with an answer",
            "mean distance",
            "changed features",
            "can do nothing",
        )
        return Table(head, tuple(self._line_of(group) for group in self.groups))

    def _line_of(self, group: str) -> tuple[str, ...]:
        coverage, asked = self.figure("coverage", group)
        rows, fixed = self.figure("rows", group)[0], self.figure("fixed_share", group)[0]
        return (
            spoken_group(group, self.columns),
            f"{rows or 0:,.0f}",
            f"{asked:,}",
            "" if coverage is None else percent(coverage),
            short(self.figure("mixed", group)[0]),
            short(self.figure("n_changed", group)[0]),
            "" if fixed is None else percent(fixed),
        )

    @cached_property
    def side_by_side(self) -> Table | None:
        """The explainers beside each other; None where there is but one."""
        material = self.material
        if len(material.lines) < 2 and not material.failures:
            return None
        head = ("explainer", *(label for label, _ in COMPARED.values()))
        lines = [_line(material.figures, name) for name in material.lines]
        failed = [(name, f"failed: {why}", *[""] * (len(COMPARED) - 1)) for name, why in material.failures.items()]
        return Table(head, (*lines, *failed))


# metric -> what it is called, and whether it is a share
COMPARED: Final[Mapping[str, tuple[str, bool]]] = {
    "coverage": ("with an answer", True),
    "validity": ("valid", True),
    "constraint_satisfaction": ("lawful", True),
    "mixed": ("mean distance", False),
    "n_changed": ("changed features", False),
    "plausibility": ("plausibility", False),
    "proved/optimal": ("proved nearest", True),
    "evaluations": ("evaluations", False),
}


def obstacle(reason: str, speaker: Speaker) -> str:
    """Return what stands in the way in words: the constraints that a reason names, or else all of it."""
    told: dict[str, None] = {}
    for found in _PATH.finditer(reason):
        section, behind = found.groups()
        if section not in OBSTACLES:
            return reason
        about = "several rules" if section == "rules" else "several features"
        if behind == ".":
            rest = reason[found.end() :]
            named = max((name for name in speaker.features if rest.startswith(name)), key=len, default="")
            about = speaker.name(named) if named else about
        elif behind:
            about = f"rule {int(behind[1:-1]) + 1}"
        told[OBSTACLES[section].format(about)] = None
    return " and ".join(told) or reason


def _line(figures: pd.DataFrame, explainer: str) -> tuple[str, ...]:
    own = figures[(figures["explainer"] == explainer) & (figures["group"] == "")]
    known = dict(zip(own["metric"], own["value"], strict=True))
    cells = [
        "" if metric not in known else percent(known[metric]) if share else short(known[metric])
        for metric, (_, share) in COMPARED.items()
    ]
    return (explainer, *cells)


def _ratio(near: Dot, far: Dot) -> float:
    return far.value / near.value if near.value else float("inf") if far.value else 1.0
