"""GeCo and the nearest row on the data of GeCo's paper, beside the paper's figures. What `make bench` runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import mlflow
import numpy as np
import speed
from data_sets import VIEWS, Case, load_case
from measures import Asked, accepted, ask, faults, measure, table
from published import PUBLISHED, wrapped
from tree_boxes import Boxes, Nearest

from mlflow_cf.explainers import Explainer, GeCo, NearestRow

EXPLAINERS: Mapping[str, Explainer] = {
    "geco": GeCo(q=PUBLISHED.q, m_init=PUBLISHED.m_init, m_mut=PUBLISHED.m_mut),
    "geco as published": PUBLISHED,
    "nearest_row": NearestRow(),
}


@dataclass(frozen=True, eq=False)
class Report:
    """One data set: the figures of every explainer and regime, and every promise that was not kept, in words."""

    measured: Mapping[str, Mapping[str, float]]
    regimes: Mapping[str, Mapping[str, float]]
    broken: Sequence[str]


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rows", type=int, default=200, metavar="N", help="rejected rows to explain per data set (default: 200)")
    add("--data-sets", default=",".join(VIEWS), metavar="A,B", help=f"of {', '.join(VIEWS)} (default: all)")
    add("--seed", type=int, default=0, help="for split, tree and explainers (default: 0)")
    add("--log", action="store_true", help="log the figures as an MLflow run")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if a promise was broken: validity, constraints, a counterfactual where one exists."""
    chosen = options().parse_args(arguments)
    names = [name.strip() for name in chosen.data_sets.split(",") if name.strip()]
    unknown = [name for name in names if name not in VIEWS]
    if unknown or chosen.rows < 1:
        raise SystemExit(f"--data-sets: {unknown[0]!r} is none of {', '.join(VIEWS)}" if unknown else "--rows: below 1")
    start = time.perf_counter()
    reports = {name: run(load_case(name, chosen.rows, chosen.seed), chosen.seed) for name in names}
    if chosen.log:
        _log(reports, {"rows": chosen.rows, "seed": chosen.seed})
    print(f"\nThe benchmark took {time.perf_counter() - start:.0f} s.")
    return 1 if any(report.broken for report in reports.values()) else 0


def run(case: Case, seed: int) -> Report:
    """Run all explainers on one data set and print what came out."""
    print(f"\n=== {case.name}")
    if case.rejected.empty:
        raise SystemExit("The tree rejects none of the held-out rows, so there is nothing to explain.")
    print(
        f"{len(case.background):,} background rows, {case.background.shape[1]} features, "
        f"a tree with {case.model[-1].get_n_leaves():,} leaves (accuracy {case.accuracy:.1%}), "
        f"{len(case.rejected)} rejected rows"
    )
    explained = wrapped(case, seed)
    print(f"searches use: {explained.describe()['structure']}")
    asked = {
        name: ask(explained, explainer, case.rejected, _teller(name, len(case.rejected)))
        for name, explainer in EXPLAINERS.items()
    }
    optima = _optima(case)
    measured = {name: measure(case, answers, optima) for name, answers in asked.items()}
    print(f"\n{table(case.name, measured)}\n")
    broken = list(_broken(case, asked, optima))
    print("\n".join([_summary(asked, optima), *broken]))
    return Report(measured, _regimes(case, seed), broken)


def _regimes(case: Case, seed: int) -> dict[str, speed.Figures]:
    """Compare the search with and without constraints, rules and groups, and print what came out."""
    print(
        "\ngeco as published, medians per row: candidates, CPU seconds of its search, of the whole answer; then shares"
    )
    contests = speed.contests(case, seed)
    measured: dict[str, speed.Figures] = {}
    for contest in contests:
        measured.update(speed.run(contest, seed, _teller(", ".join(contest.regimes), len(contest.case.rejected))))
    print(f"\n{speed.table(contests, measured)}")
    return measured


def _teller(name: str, total: int) -> Callable[[int], None]:
    """Return a function that prints how many rows are done, four times in all."""
    start = time.perf_counter()

    def say(done: int) -> None:
        if 4 * done // total > 4 * (done - 1) // total:
            print(f"  {name}: {done} of {total} rows after {time.perf_counter() - start:.1f} s", flush=True)

    return say


def _optima(case: Case) -> list[list[Nearest]]:
    """Return each row's nearest counterfactuals within 1, within 2 and within any number of changes."""
    say = _teller("exact optima", len(case.rejected))
    boxes = Boxes.build(case)
    optima = []
    for done, x0 in enumerate(case.rejected.to_dict("records"), start=1):
        optima.append(boxes.nearest({str(name): value for name, value in x0.items()}))
        say(done)
    claimed = [nearest.row for row in optima for nearest in row if nearest.row is not None]
    if not accepted(case, claimed).all():
        raise AssertionError("an optimum read from the tree is not favourable under the pipeline")
    return optima


def _summary(asked: Mapping[str, Sequence[Asked]], optima: Sequence[Sequence[Nearest]]) -> str:
    """Say for how many rows a counterfactual exists, and how many of them each explainer missed."""
    exists = np.isfinite([[nearest.distance for nearest in row] for row in optima])
    single, pair, some = exists.sum(axis=0).tolist()
    text = f"A counterfactual exists for {single} rows within one change, {pair} within two, {some} at all (exact)."
    missed = [f"{name} {len(_missed(answers, exists[:, 2].tolist()))}" for name, answers in asked.items()]
    return f"{text}\nRows missed although one exists: {', '.join(missed)}."


def _missed(answers: Sequence[Asked], exists: Sequence[bool]) -> list[int]:
    return [at for at, (a, can) in enumerate(zip(answers, exists, strict=True)) if can and a.row is None]


def _broken(case: Case, asked: Mapping[str, Sequence[Asked]], optima: Sequence[Sequence[Nearest]]) -> list[str]:
    """Return every broken promise: rows GeCo missed, invalid answers, answers against a constraint."""
    within_two = [np.isfinite(row[1].distance) for row in optima]
    other = [a.row is not None for a in asked["nearest_row"]]
    exists = [one or two for one, two in zip(within_two, other, strict=True)]
    lines = [
        f"BROKEN: geco found nothing for row {at} ({asked['geco'][at].explanation.reason}), "
        f"but {'one or two changes do' if within_two[at] else 'nearest_row did'}"
        for at in _missed(asked["geco"], exists)
    ]
    for name, answers in asked.items():
        found = [(at, a.row) for at, a in enumerate(answers) if a.row is not None]
        good = accepted(case, [row for _, row in found])
        lines += [
            f"BROKEN: {name}, row {at}: the pipeline rejects the answer"
            for (at, _), holds in zip(found, good, strict=True)
            if not holds
        ]
        lines += [f"BROKEN: {name}, row {at}: {', '.join(what)}" for at, what in faults(case, answers).items()]
    return lines


def _log(reports: Mapping[str, Report], parameters: Mapping[str, int]) -> None:
    with mlflow.start_run(run_name="benchmark"):
        mlflow.log_params(dict(parameters))
        for name, report in reports.items():
            groups = {**report.measured, **{f"regime {key}": figures for key, figures in report.regimes.items()}}
            for method, figures in groups.items():
                mlflow.log_metrics({f"{name}/{method}/{key}": value for key, value in figures.items()})


if __name__ == "__main__":
    sys.exit(main())
