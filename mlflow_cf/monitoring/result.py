"""What monitoring has found, for programs and for people."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from mlflow_cf import cards
from mlflow_cf.evaluation.names import percent
from mlflow_cf.features import Floats
from mlflow_cf.monitoring.pictures import pictures
from mlflow_cf.monitoring.windows import Cut
from mlflow_cf.reporting.page import write

FIRST: Final = ("coverage", "status.busy", "distance", "n_changed", "proof.optimal", "seconds_p50", "acted", "validity")
MOST_TOLD: Final = 8  # drifts


@dataclass(frozen=True)
class Told:
    """What is to be said beside figures; see `Monitoring`."""

    models: Mapping[str, int]
    skipped: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Monitoring:
    """Served explanations window by window.

    Every line of a table belongs to a ``window``: ``reference``, or the first day or moment of one. Intervals hold
    95 %, and take the answers of one request, or of another `block`, as one draw.

    Attributes:
        spans: one line per window: start, end (UTC), answers, whether it is whole, and whether anything drifted.
        windows: one line per window, measure and group ("" for all): value, low, high, count and requests.
        features: one line per window and feature: the share of nearest answers that change it, low, high and answers;
            and, of people whose outcome is told, the share who changed it as advised.
        outcomes: one line per window, measure and group: ``acted``, ``complete`` (all changes of the answer that was
            followed), ``first_answer`` (it was the first), ``validity`` (decided as wanted after acting), ``days_p50``
            and ``days_p95`` to act.
        drift: one line per tested window and series: reference, value, psi (population stability index), statistic (how
            far from chance, in its standard deviations), p_alone, p (corrected) and drifted.
        alpha: how often any window drifts though nothing has changed, at most.
        models: how many answers are of each logged model.
        skipped: why answers were left out -> how many.
        notes: what else is worth knowing.
        run_id: the MLflow run that has it all; "": nothing was logged.
        report: path of the HTML page among the run's artifacts; "": there is none.
    """

    spans: pd.DataFrame
    windows: pd.DataFrame
    features: pd.DataFrame
    outcomes: pd.DataFrame
    drift: pd.DataFrame
    alpha: float
    models: Mapping[str, int]
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    run_id: str = ""
    report: str = ""

    @classmethod
    def of(
        cls, spans: pd.DataFrame, figures: pd.DataFrame, drift: pd.DataFrame, alpha: float, told: Told
    ) -> Monitoring:
        """Return the tables of what was measured, whose windows are numbers so far: the lines of `spans`.

        `figures` has a line per window and metric, and `drift` one per window and what was tested at the rate `alpha`
        of false alarms; what was `told` of the source of the answers stands beside them.
        """
        names = spans["window"].tolist()
        drifted = set(drift.loc[drift["drifted"], "window"])
        figures = figures.assign(window=[names[at] for at in figures["window"]])
        drift = drift.assign(window=[names[at] for at in drift["window"]])
        return cls(
            spans=spans.assign(drifted=[at in drifted for at in range(len(names))]),
            windows=_of_part(figures, "answers").drop(columns="feature"),
            features=_features(figures),
            outcomes=_of_part(figures, "outcomes").drop(columns="feature"),
            drift=drift[["window", *(name for name in drift.columns if name != "window")]],
            alpha=alpha,
            models=told.models,
            skipped=told.skipped,
            notes=told.notes,
        )

    @property
    def drifted(self) -> bool:
        """Whether any tested window differs from the reference by more than chance."""
        return bool(self.drift["drifted"].any())

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the windows that were tested."""
        return tuple(self.drift["window"].unique())

    @property
    def found(self) -> pd.DataFrame:
        """The lines of `drift` that drifted, the latest window first, then what is farthest from chance."""
        own = self.drift[self.drift["drifted"]]
        order = {name: at for at, name in enumerate(self.spans["window"])}
        place = own["window"].map(order)
        ordered = own.assign(place=place).sort_values(["place", "statistic"], ascending=False, kind="stable")
        return ordered.drop(columns="place")

    def to_frame(self) -> pd.DataFrame:
        """Return the figures of all answers side by side: one line per window, one column per measure."""
        whole = pd.concat([self.windows, self.outcomes])
        whole = whole[whole["group"] == ""]
        table = whole.pivot_table(index="window", columns="measure", values="value", sort=False, dropna=False)
        return table.reindex(self.spans["window"])

    def overview(self) -> pd.DataFrame:
        """Return what is read first: a line per window with the number of its answers, and the main figures."""
        frame = self.to_frame()
        spans = self.spans.set_index("window")[["answers", "drifted"]]
        return spans.join(frame[[name for name in FIRST if name in frame and frame[name].notna().any()]])

    def to_dict(self) -> dict[str, Any]:
        """Return what pipelines read as plain JSON values: what drifts, the windows with their figures, and notes."""
        return {
            "headline": self.headline,
            "drifted": self.drifted,
            "alpha": self.alpha,
            "found": _plain(self.found.drop(columns="drifted")),
            "windows": _plain(self.spans.merge(self.to_frame(), left_on="window", right_index=True)),
            "models": dict(self.models),
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
            "run_id": self.run_id,
        }

    def figures(self) -> dict[str, Figure]:
        """Return pictures for slides by name; those that would be empty are left out."""
        return dict(pictures(self))

    def to_html(self, path: str | Path | None = None) -> str:
        """Return one page that needs nothing beside it, with tables and pictures; write it to `path`, if there is one.

        Raises:
            InputError: the file cannot be written.
        """
        images = [_image(name, one) for name, one in self.figures().items()]
        body = cards.page(cards.told(self.headline), cards.items(self._said()), *images, *self._tables())
        text = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Monitoring</title>'
            f'</head><body style="max-width:72rem;margin:2rem auto;padding:0 1rem">{body}</body></html>'
        )
        if path is not None:
            write(Path(path), text)
        return text

    @property
    def headline(self) -> str:
        """What was found, in a sentence."""
        tested = len(self.tested)
        if not tested:
            return "No window was tested."
        if not self.drifted:
            return f"Nothing drifts in {_counted(tested, 'window')}."
        first = self.found.iloc[0]
        windows = self.found["window"].nunique()
        more = len(self.found) - 1
        told = f"{spoken(first, sure=False)}{f', and {more} more' if more else ''}"
        return f"{windows} of {_counted(tested, 'window')} drift{'s' if windows == 1 else ''}: {told}."

    def _said(self) -> list[str]:
        rate = f"False alarms: at most {percent(self.alpha)} of such tests find any drift though nothing has changed."
        skipped = [f"left out, because {why}: {count:,}" for why, count in self.skipped.items()]
        return [rate, *self.notes, *skipped]

    def _tables(self) -> list[Markup]:
        found = self.found.drop(columns=["drifted"])
        outcomes = self.outcomes[self.outcomes["group"] != ""] if len(self.outcomes) else self.outcomes
        grouped = self.windows[self.windows["group"] != ""]
        shares = self.features.pivot_table(index="window", columns="feature", values="share", sort=False)
        named = {
            "Windows": (self.overview(), True),
            "Drift": (found, False),
            "Share of nearest answers that change a feature": (shares, True),
            "By group": (grouped, False),
            "Outcomes by group": (outcomes, False),
        }
        return [
            part
            for title, (one, index) in named.items()
            if len(one)
            for part in (cards.told(title), cards.table(one, index=index))
        ]

    def __repr__(self) -> str:
        table = self.overview().to_string(float_format="{:.4g}".format, na_rep="")
        drifts = [f"drift: {spoken(line)}" for _, line in self.found.head(MOST_TOLD).iterrows()]
        left = len(self.found) - len(drifts)
        drifts += [f"drift: and {left} more" if left else ""] if left > 0 else []
        return "\n".join([self.headline, table, *drifts, *(f"note: {note}" for note in self._said())])

    def _repr_html_(self) -> str:
        """Return what is read first as tables for notebooks."""
        return cards.page(cards.told(self.headline), cards.items(self._said()), *self._tables())


def spans_of(parted: Cut, sizes: Floats) -> pd.DataFrame:
    """Return one line per window with the number of its answers (w,)."""
    names = ("name", "start", "end", "whole")
    table = pd.DataFrame({name: [getattr(one, name) for one in parted.windows] for name in names})
    return table.rename(columns={"name": "window"}).assign(answers=sizes.astype(np.int64))


def spoken(line: pd.Series, *, sure: bool = True) -> str:
    """Return one line of `drift` in words: what differs, in which window, from what to what, perhaps with its p."""
    what = f"advice on {line['feature']}" if line["measure"] == "advised" and line["feature"] else str(line["measure"])
    if line["test"] == "distribution":
        what = "the mix of advice" if line["measure"] == "advised" else f"the distribution of {what}"
        size = f"population stability index {line['psi']:.2f}"
    elif not np.isnan(line["psi"]):
        size = f"{percent(line['reference'])} to {percent(line['value'])}"
    else:
        size = f"{line['reference']:.3g} to {line['value']:.3g}"
    told = f" (p = {line['p']:.2g})" if sure else ""
    of = f" of {line['group']}" if line["group"] else ""
    return f"{what}{of} in {line['window']}: {size}{told}"


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the lines of a table as JSON values: moments as text, what is missing as None."""
    lines: list[dict[str, Any]] = json.loads(table.to_json(orient="records", date_format="iso", double_precision=15))
    return lines


def _of_part(figures: pd.DataFrame, part: str) -> pd.DataFrame:
    own = figures[(figures["part"] == part) & (figures["count"] > 0)]
    return own.drop(columns="part").reset_index(drop=True).astype({"count": "int64", "requests": "int64"})


def _features(figures: pd.DataFrame) -> pd.DataFrame:
    """Return one line per window and feature: who is advised to change it, and who has done so."""
    keys = ["window", "feature"]
    told = _of_part(figures, "features").rename(columns={"value": "share", "count": "answers"})
    done = _of_part(figures, "adoption").rename(
        columns={"value": "adopted", "low": "adopted_low", "high": "adopted_high", "count": "outcomes"}
    )
    told = told[[*keys, "share", "low", "high", "answers"]]
    return told.merge(done[[*keys, "adopted", "adopted_low", "adopted_high", "outcomes"]], on=keys, how="left")


def _image(name: str, figure: Figure) -> Markup:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    return Markup('<img alt="{}" style="max-width:100%" src="data:image/png;base64,{}">').format(name, data)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
