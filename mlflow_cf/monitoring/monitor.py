"""`monitor`: what served explanations look like from window to window, and whether they drift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed_to
from numbers import Integral, Real
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import get_model_info

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.measure.lines import GroupSource, members_of
from mlflow_cf.features import Floats
from mlflow_cf.monitoring import drift as drifting
from mlflow_cf.monitoring import tables, traces
from mlflow_cf.monitoring.figures import figures, quantiles
from mlflow_cf.monitoring.grouping import Grouping
from mlflow_cf.monitoring.lines import SKEW, Ints, Lines, check_groups, only_of
from mlflow_cf.monitoring.logged import log
from mlflow_cf.monitoring.result import Monitoring, Told, spans_of
from mlflow_cf.monitoring.series import Followed, followed
from mlflow_cf.monitoring.windows import Cut, cut, cut_beside, interval_of, moment, units, width_of

Source = pd.DataFrame | str | Path | Sequence[str | Path]
Block = Literal["request", "hour", "day"]
FUTURE: Final = "they are from the future: the clock of a server is ahead"


def monitor(
    source: Source,
    *,
    reference: Source | tuple[str, str] | None = None,
    window: str = "7d",
    model: str | None = None,
    groups: GroupSource | None = None,
    columns: Mapping[str, str] | None = None,
    block: Block = "request",
    newest: int | None = None,
    alpha: float = 0.05,
    until: pd.Timestamp | str | None = None,
    seed: int = 0,
    log_run: bool = True,
) -> Monitoring:
    """Follow served explanations from window to window, and test whether they differ from the reference.

    Figures are logged to the active run, or to one that is opened for it, a step per window.

    Args:
        source: experiments with traces, by name or id; a frame of `mlflow.search_traces`; or an inference table, as a
            data frame, or as parquet: files, or folders of them.
        reference: what windows are compared with: an interval such as ``"2026-01-01/2026-02-01"`` or a pair of moments,
            behind which windows begin; another source of any kind, whose groups are those of all; None: the first
            window.
        window: how long windows are: ``"7d"``, ``"12h"``.
        model: the id of the logged model, ``m-...``, or a ``models:/`` URI of it; ``"all"``: all together; None: there
            must be one alone.
        groups: columns by which figures are split, as in `evaluate`: of the table, of rows in traces, or tags
            ``cf.group.<column>`` of traces.
        columns: what a table calls ours, where that is another name: ``{"time": "ts"}``.
        block: what stays together in tests and intervals: the answers of one request, of an hour, or of a day.
        newest: test so many of the latest whole windows; None: all of them.
        alpha: the rate of false alarms: how often drift is found in any window though nothing has changed.
        until: the moment that answers are known to; None: now, or the last line of a table.
        seed: of the permutations.
        log_run: whether anything is logged.

    Raises:
        InputError: nothing to monitor; several models and none named; a column, an experiment or a file that is not
            there; arguments that do not fit; a run that cannot be logged.
    """
    width, asked = width_of(window), Asked(block, newest, alpha, seed)
    _check(asked)
    _check_names(model, groups, columns)
    interval = interval_of(reference) if _path(reference) is None else None  # a file may be called like one
    grouping, earlier = Grouping(groups), None
    if reference is not None and interval is None:
        earlier, before = _read(reference, grouping, columns, model, None)
        grouping = Grouping(groups, earlier.groupers)
    now = pd.Timestamp.now("UTC").tz_localize(None)
    lines, told = _read(source, grouping, columns, model, None if interval is None else interval[0])
    lines = _known(lines.without(lines.time > (now + SKEW).as_unit("ns").value, FUTURE))
    last = pd.Timestamp(int(lines.time[-1]))
    end = moment("until", until) if until is not None else max(last, now) if _is_live(source) else last
    if earlier is None:
        lines, parted = cut(lines, width, interval, end)
    else:
        told |= {f"{why} (reference)": count for why, count in before.items()}
        lines, parted = cut_beside(lines, _known(earlier), width, end)
    found = measured(lines, parted, asked)
    notes = (*parted.notes(), *found.notes, *(f"{why}: {count:,}" for why, count in told.items()))
    found = changed_to(found, notes=tuple(notes))
    return _logged(found, {"window": str(window), "source": _name(source)}) if log_run else found


@dataclass(frozen=True)
class Asked:
    """How windows are tested; see `monitor`."""

    block: str
    newest: int | None
    alpha: float
    seed: int


def measured(lines: Lines, parted: Cut, asked: Asked) -> Monitoring:
    """Return the figures of all windows, and the tests of those that are whole."""
    unit = units(lines, parted.place, asked.block)
    series = followed(lines, unit, parted.place)
    count = len(parted.windows)
    table = pd.concat(
        [
            figures(series, count),
            quantiles(lines.seconds, unit, parted.place, count, ("seconds", "answers")),
            *_days(lines, unit, parted),
        ],
        ignore_index=True,
    )
    tested = [at for at, one in enumerate(parted.windows) if one.whole and not one.reference]
    wanted = tested[-(asked.newest or len(tested)) :]
    kept = wanted[-drifting.MOST_WINDOWS :]
    found, notes = _drift(series, parted, kept, table, asked)
    if len(kept) < len(wanted):
        notes.append(f"the newest {len(kept)} windows are tested, of {len(wanted):,}")
    if series.left_out:
        notes.append(f"{series.left_out} features that are advised least are not followed")
    told = Told(lines.models, lines.skipped, tuple(notes))
    sizes: Floats = np.bincount(parted.place, weights=lines.rows, minlength=count).astype(np.float64)
    return Monitoring.of(spans_of(parted, sizes), table, found, asked.alpha, told)


def _days(lines: Lines, unit: Ints, parted: Cut) -> Iterator[pd.DataFrame]:
    """Yield how long people took until they acted: all of them, then those of each group."""
    for group, member in members_of(lines.groups, len(lines)).items():
        known = np.where(member & (lines.acted == 1), lines.days, np.nan)
        if not np.isnan(known).all():
            told = quantiles(known, unit, parted.place, len(parted.windows), ("days", "outcomes"))
            yield told.assign(group=group)


def _drift(
    series: Followed, parted: Cut, tested: Sequence[int], table: pd.DataFrame, asked: Asked
) -> tuple[pd.DataFrame, list[str]]:
    """Return one line per window and hypothesis, and notes on windows that could not be tested."""
    effort = drifting.Effort(drifting.permutations_for(len(tested), asked.alpha), asked.alpha)
    keys = ["measure", "feature", "group"]
    own = table[table["part"].isin(["answers", "features"])]
    before = own[own["window"] == 0][[*keys, "value"]].rename(columns={"value": "reference"})
    found, few = [], []
    for at in tested:
        # a window is shuffled alike, whichever others are tested
        result = drifting.drift(series, at, effort, np.random.default_rng([asked.seed, at]))
        if result is None:
            few.append(parted.windows[at].name)
            continue
        told = before.merge(own[own["window"] == at][[*keys, "value"]], on=keys)
        found.append(drifting.table(result, told).assign(window=at))
    lines = pd.concat(found, ignore_index=True) if found else _nothing()
    p = np.minimum(lines["p"] * max(len(tested) - len(few), 1), 1.0)
    lines = lines.assign(p=p, drifted=p <= asked.alpha)
    why = f"fewer than {drifting.LEAST} {asked.block}s in it or in the reference"
    notes = [f"not tested, {why}: {', '.join(few[:6])}{', ...' if len(few) > 6 else ''}"] if few else []
    return lines, notes if tested else ["there is no whole window to test yet"]


def _nothing() -> pd.DataFrame:
    names = ("window", "measure", "feature", "group", "test", "reference", "value", "psi", "statistic", "p_alone", "p")
    numbers = names[5:]
    return pd.DataFrame({name: pd.Series(dtype=float if name in numbers else object) for name in names})


def _read(
    source: object, groups: Grouping, columns: Mapping[str, str] | None, model: str | None, since: pd.Timestamp | None
) -> tuple[Lines, dict[str, int]]:
    """Return the lines of a source, of one model, and what is to be said of how many."""
    if isinstance(source, pd.DataFrame):
        if not len(source):
            raise InputError("source", "a table without lines", "pass the traces or answers of some time")
        found = traces.of_frame(source, groups) if traces.is_frame(source) else tables.of_table(source, groups, columns)
    elif (paths := _paths(source)) is not None:
        found = tables.of_files(paths, groups, columns)
    elif isinstance(source, str | list | tuple) and all(isinstance(one, str) for one in source):
        found = traces.of_store(source, groups, since)
    else:
        raise InputError("source", f"{type(source).__name__} is no source", "pass a table, a path or an experiment")
    lines, told = found
    lines = only_of(lines, _model_id(model))
    check_groups(lines)
    return lines, told


def _known(lines: Lines) -> Lines:
    """Return lines, of which there must be some.

    Raises:
        InputError: there are none, with what was left out.
    """
    if not len(lines):
        why = "; ".join(f"{count:,} left out: {why}" for why, count in lines.skipped.items())
        raise InputError("source", f"no answers to follow{f' ({why})' if why else ''}", "log models with trace=True")
    return lines


def _logged(found: Monitoring, params: Mapping[str, str]) -> Monitoring:
    """Log everything; return the result with the id of its run.

    Raises:
        InputError: the store does not take it.
    """
    try:
        return log(found, params)
    except (MlflowException, OSError) as error:
        fact = f"the run cannot be logged ({str(error).rstrip('.')})"
        raise InputError("log_run", fact, "check MLFLOW_TRACKING_URI, or do without: log_run=False") from error


def _paths(source: object) -> tuple[Path, ...] | None:
    """Return the files and folders that a source names; None: it names none.

    Raises:
        InputError: it names others, too.
    """
    if not isinstance(source, list | tuple):
        path = _path(source)
        return None if path is None else (path,)
    paths = [path for path in map(_path, source) if path is not None]
    if paths and len(paths) < len(source):
        raise InputError("source", f"{str(paths[0])!r} is a file, and others are none", "read files alone, or none")
    return tuple(paths) or None


def _path(source: object) -> Path | None:
    if isinstance(source, Path):
        return source
    if not isinstance(source, str):
        return None
    path = Path(source)
    # an experiment may be called like a folder that happens to be here
    own = source.endswith(".parquet") or path.is_file() or (path.is_dir() and any(path.rglob("*.parquet")))
    return path if own else None


def _is_live(source: object) -> bool:
    """Whether more answers may still come: a table says nothing of what is behind its last line."""
    return not isinstance(source, pd.DataFrame) and _paths(source) is None


def _name(source: object) -> str:
    if isinstance(source, pd.DataFrame):
        return "a table"
    return str(source) if isinstance(source, str | Path) else ", ".join(map(str, source))  # type: ignore[call-overload]


def _model_id(model: str | None) -> str | None:
    """Return MLflow's id of a logged model that is named by a URI.

    Raises:
        InputError: there is no such model.
    """
    if model is None or not model.startswith("models:/"):
        return model
    try:
        return str(get_model_info(model).model_id)
    except MlflowException as error:
        raise InputError("model", f"{model!r} is not found ({error.message.rstrip('.')})", "check the URI") from error


def _check(asked: Asked) -> None:
    """Refuse tests that cannot be made.

    Raises:
        InputError: one of the arguments does not fit.
    """
    if not (isinstance(asked.alpha, Real) and 0 < asked.alpha < 1):
        raise InputError("alpha", f"{asked.alpha!r} is no rate", "a number between 0 and 1, such as 0.05")
    if asked.newest is not None and not (isinstance(asked.newest, Integral) and asked.newest >= 1):
        raise InputError("newest", f"{asked.newest!r} windows", "test a whole number of them, one at least")
    if not isinstance(asked.seed, Integral):
        raise InputError("seed", f"{asked.seed!r} is no whole number", "0 or more")
    if asked.seed < 0:
        raise InputError("seed", f"{asked.seed!r} is negative", "0 or more")
    if asked.block not in get_args(Block):
        raise InputError("block", f"{asked.block!r} is not known", did_you_mean(asked.block, get_args(Block)))


def _check_names(model: object, groups: object, columns: object) -> None:
    """Refuse what names nothing.

    Raises:
        InputError: one of the arguments is of another type.
    """
    if not isinstance(model, str | None):
        raise InputError("model", f"{model!r} is no name", "its id, such as 'm-1', a models:/ URI, or 'all'")
    if not isinstance(groups, Iterable | None):
        raise InputError("groups", f"{groups!r} names no columns", "a column, or a list of them")
    for name, edges in groups.items() if isinstance(groups, Mapping) else ():
        if not (edges is None or (isinstance(edges, Iterable) and all(isinstance(one, Real) for one in edges))):
            raise InputError(f"groups.{name}", f"{edges!r} are no edges of bins", f"groups={{{name!r}: [30, 50]}}")
    if not isinstance(columns, Mapping | None):
        raise InputError("columns", f"{columns!r} is no dict of names", "columns={'time': 'ts'}")
