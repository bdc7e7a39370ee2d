"""Every explainer beside dice-ml, NICE and treecf, opened models, proofs, and GeCo beside the figures of its paper."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from cases import tree_cases
from cases.data_sets import VIEWS, Case, constraints_for, folder, split
from cases.models import LARGE, MODELS, fitted, unopened
from pages import page, summary
from parts import (
    autolog,
    beside_papers,
    certificates,
    contest,
    endpoints,
    envelope,
    further,
    hard,
    levers,
    load,
    monitoring,
    portfolio,
    programs,
    reasons,
    regions,
    runs,
    several,
    structure_speed,
    survival,
    tree_contest,
)
from parts.gates import Gate, told
from rivals.rival_dice import METHODS

Options = argparse.Namespace


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    public = folder().is_dir()
    there = ["adult", "credit"] if public else ["loans"]

    def add(option: str, known: Sequence[str], default: Sequence[str], text: str) -> None:
        read = _list_of(known, default)
        text = f"{text}: some of {', '.join(known)} (default: {','.join(default) or 'see README'})"
        parser.add_argument(option, type=read, default=list(default), metavar="A,B", help=text)

    add("--parts", list(PARTS), ["contest", *(["paper"] if public else []), "trees", "proofs"], "what to run")
    add("--data-sets", list(VIEWS), there, "data sets of the contest, and of the paper where it has them")
    add("--models", [*MODELS, *LARGE], [], "models of the contest and of the exact part")
    add("--dice", METHODS, METHODS[:1], "methods of dice-ml")
    text = (
        "rows to explain (default: 15 per model of the contest, 100 per data set of the paper, 8 per case of trees, 3 "
    )
    text += "per shape of proofs, else 30)"
    parser.add_argument("--rows", type=_count, default=0, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=0, help="for splits, models and explainers (default: 0)")
    text = "shapes of models in the part proofs (default: short, ten of them; whole is all 48)"
    parser.add_argument("--grid", choices=list(envelope.GRIDS), default="short", help=text)
    text = "write the figures of the part page into the tables of this page of the documentation"
    parser.add_argument("--docs", default="", metavar="FILE", help=text)
    text = "keep the MLflow runs there (default: where MLflow is set to)"
    parser.add_argument("--store", default="", metavar="FOLDER", help=text)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the parts asked for; return 1 if an answer was wrong, or missing where one exists."""
    chosen = options().parse_args(arguments)
    runs.use_store(chosen.store)
    start = time.perf_counter()
    with mlflow.start_run(run_name="benchmark"):
        # tags, because a project's parameters are in its run already, as they were given
        mlflow.set_tags({f"benchmark.{key}": str(value) for key, value in vars(chosen).items() if key != "store"})
        broken = [line for part in chosen.parts for line in PARTS[part](chosen)]
        mlflow.log_metric("broken", len(broken))
    print("\n".join(["", *broken, f"The benchmark took {time.perf_counter() - start:.0f} s."]))
    return 1 if broken else 0


def run_contest(chosen: Options) -> list[str]:
    """Run every method on every model and data set; return the promises that were broken."""
    speed: dict[str, structure_speed.Speed | None] = {}
    pairs: list[contest.Pair] = []
    promised: list[tuple[str, Gate]] = []
    broken: list[str] = []
    for model, case in _cases(chosen, 15, large=False):
        pair = contest.run(case, model, chosen.seed, chosen.dice)
        pairs.append(pair)
        speed[pair.name] = scored = structure_speed.measure(pair.case, pair.explained, chosen.seed)
        found = [*pair.gates, *(scored.gates(case.name, model) if scored else [])]
        runs.log_pair(pair, found, scored.figures() if scored else {})
        promised += [(pair.name, gate) for gate in found]
        broken += [f"{line} ({pair.name})" for line in pair.broken]
    print(f"\n=== The opened model beside the pipeline\n\n{structure_speed.tables(speed)}")
    once = {(p.case.name, p.model): one.pipeline[1] for p in pairs if (one := speed[p.name]) is not None}
    compared = summary.table({(pair.case.name, pair.model): pair.measured for pair in pairs}, once)
    print(f"\n=== GeCo beside dice-ml and the pipeline: CPU\n\n{compared}")
    print(f"\n=== Proofs\n\n{certificates.table({pair.name: pair.certificates for pair in pairs})}")
    print(told(promised))
    mlflow.log_table(pd.DataFrame([line for pair in pairs for line in _methods(pair)]), "methods.json")
    return broken


def _methods(pair: contest.Pair) -> list[dict[str, Any]]:
    return [{"pair": pair.name, "method": method, **values} for method, values in pair.measured.items()]


def _cases(chosen: Options, rows: int, *, large: bool) -> Iterator[tuple[str, Case]]:
    """Fit every model to every data set; yield its name, and `rows` rows that it rejects, unless told otherwise.

    With `large`, also the large models that something is promised about.
    """
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        constraints = constraints_for(name, parts.X, rules=True)
        more = [model for model in LARGE if large and certificates.promised(name, model)]
        for model in chosen.models or [*MODELS, *more]:
            pipeline = fitted(model, parts.X, parts.y, chosen.seed)
            yield model, parts.case(pipeline, chosen.rows or rows, constraints)


def run_exact(chosen: Options) -> list[str]:
    """Let GeCo answer with and without certificates, on large models too; return the promises that were broken."""
    measured: dict[str, certificates.Certificates] = {}
    promised: list[tuple[str, Gate]] = []
    broken: list[str] = []
    for model, case in _cases(chosen, 30, large=True):
        name = f"{case.name} / {model}"
        measured[name], wrong = certificates.run(case, model, chosen.seed)
        with mlflow.start_run(run_name=f"{name}, exact", nested=True):
            runs.log_figures({"proofs": measured[name].figures()})
        promised += [(name, gate) for gate in measured[name].gates(case.name, model)]
        broken += [f"{line} ({name})" for line in wrong]
    print(f"\n=== Proofs\n\n{certificates.table(measured)}\n{told(promised)}")
    return broken


def run_further(chosen: Options) -> list[str]:
    """Hold answers to more than the target; return the promises that were broken."""
    measured: dict[str, dict[str, further.Line]] = {}
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        constraints = constraints_for(name, parts.X, rules=True)
        for model in chosen.models or further.MODELS:
            case = parts.case(fitted(model, parts.X, parts.y, chosen.seed), chosen.rows or 30, constraints)
            measured[f"{name} / {model}"] = further.run(case, model, chosen.seed)
    runs.log_figures({f"further {n} {wish}": vars(line) for n, some in measured.items() for wish, line in some.items()})
    promised = [(name, gate) for name, lines in measured.items() for gate in further.gates(lines)]
    print(f"\n=== Further requirements, with certificates\n\n{further.table(measured)}\n{told(promised)}")
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.most is False and not gate.kept]


def run_survival(chosen: Options) -> list[str]:
    """Promise that answers survive a retraining, and retrain; return the promises that were broken."""
    measured: dict[str, survival.Line] = {}
    costs: dict[str, dict[str, float]] = {}
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        constraints = constraints_for(name, parts.X, rules=False)
        for model in chosen.models or survival.MODELS:
            line = survival.run(parts, model, chosen.rows or survival.ROWS, chosen.seed, constraints)
            measured[f"{name} / {model}"] = line
            print(f"{name} / {model}: {line}", flush=True)
        case = parts.case(fitted("xgboost", parts.X, parts.y, chosen.seed), chosen.rows or 30, constraints)
        costs[name] = survival.certified(case, chosen.seed)
        print(f"{name}: {costs[name]}", flush=True)
    runs.log_figures({f"survival {name}": vars(line) for name, line in measured.items()})
    promised = [("all", gate) for gate in survival.gates(measured)]
    promised += [(name, survival.cost_gate(cost)) for name, cost in costs.items()]
    told_costs = pd.DataFrame(costs).T.round(3).to_string()
    print(f"\n=== Survival\n\n{survival.table(measured)}\n\n{told_costs}\n{told(promised)}")
    return []


def run_hard(chosen: Options) -> list[str]:
    """Let GeCo answer rows that need several changes; return the promises that were broken."""
    cases: dict[str, hard.Hard] = {}
    for table, model, rows in hard.CASES:
        found = hard.run(table, model, chosen.rows or rows, chosen.seed)
        cases[found.name] = found
    runs.log_figures({f"hard {name}": vars(found.geco) for name, found in cases.items()})
    print(f"\n=== Rows that need several changes: GeCo beside random search\n\n{hard.table(cases)}")
    print(told([(name, gate) for name, found in cases.items() for gate in found.gates()]))
    return [f"BROKEN {name}: rows without an answer" for name, one in cases.items() if one.geco.found < one.floor.found]


def run_levers(chosen: Options) -> list[str]:
    """Tell what all sets of up to two features can do, beside treecf; return the promises that were broken."""
    lines = levers.run_all(chosen.rows or 12, chosen.seed)
    runs.log_figures(
        {
            f"levers {name}": {key: value for key, value in vars(one).items() if np.isfinite(value)}
            for name, one in lines.items()
        }
    )
    print(f"\n=== Levers, all sets of up to {levers.MOST}: CPU ms a row\n\n{levers.table(lines)}")
    promised = [(name, gate) for name, line in lines.items() for gate in line.gates(name)]
    print(told(promised))
    return [f"BROKEN {name}: both name other sets" for name, line in lines.items() if line.agree < 1]


def run_load(chosen: Options) -> list[str]:
    """Serve a model that cannot be opened and ask too much of it; return the promises that were broken."""
    lines: dict[str, dict[str, float]] = {}
    promised: list[tuple[str, Gate]] = []
    broken: list[str] = []
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        case = parts.case(
            unopened(parts.X, parts.y), chosen.rows or load.ROWS, constraints_for(name, parts.X, rules=True)
        )
        found = load.run(case)
        lines[name] = found.figures()
        promised += [(name, gate) for gate in found.gates()]
        broken += [f"BROKEN {found.refused} requests were refused ({name} under load)"] * bool(found.refused)
    runs.log_figures({f"load {name}": figures for name, figures in lines.items()})
    print(f"\n=== Predictions while explanations are saturated\n\n{pd.DataFrame(lines).T.round(3).to_string()}")
    print(told(promised))
    return broken


def run_trees(chosen: Options) -> list[str]:
    """Set GeCo and exact answers beside treecf; return the promises that were broken."""
    tried = [tree_contest.run(case, chosen.seed) for case in tree_cases.cases(chosen.rows or 8, chosen.seed)]
    runs.log_figures({name: values for one in tried for name, values in one.figures().items()})
    print(f"\n=== Trees alone: beside treecf\n\n{tree_contest.table(tried)}")
    print(told([(one.name, gate) for one in tried for gate in one.gates()]))
    return [f"{line} ({one.name})" for one in tried for line in one.broken()]


def run_proofs(chosen: Options) -> list[str]:
    """Count what is proved within ten seconds, beside treecf; return the promises that were broken."""
    reached = [envelope.run(shape, chosen.rows or envelope.ROWS, chosen.seed) for shape in envelope.GRIDS[chosen.grid]]
    runs.log_figures({f"{one.shape.name} {name}": vars(side) for one in reached for name, side in one.sides.items()})
    print(f"\n=== Proofs within {envelope.LIMIT_S:.0f} s, beside treecf\n\n{envelope.table(reached)}")
    print(f"\nThe largest models of which every row was proved, trees x depth\n\n{envelope.limits(reached)}")
    print(told([(one.shape.name, one.gate) for one in reached]))
    return [line for one in reached for line in one.broken()]


def run_programs(chosen: Options) -> list[str]:
    """Solve programs beside best-first search; return the promises that were broken."""
    found: dict[str, programs.Both] = {}
    real: dict[str, programs.Continuous] = {}
    for model, case in _cases(chosen, 10, large=False):
        found[f"{case.name} / {model}"] = programs.beside(case, chosen.seed)
        if model in ("logistic", "mlp"):
            real[f"{case.name} / {model}, continuous"] = programs.continuous(case, chosen.seed)
    peers = []
    for kind, make in tree_cases.CREDIT.items() if "credit" in chosen.data_sets else ():
        case = tree_cases.first(tree_cases.credit(kind, make(chosen.seed), chosen.seed), chosen.rows or 10)
        peers.append(programs.trees(case, chosen.seed))
    promised = programs.gates(found, real)
    print(f"\n=== Programs beside best-first search\n\n{programs.table(found, real, peers)}\n{told(promised)}")
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what in programs.TRUE and not gate.kept]


def run_reasons(chosen: Options) -> list[str]:
    """Tell the reasons of refused rows beside shap; return the promises that were broken, but for those about speed."""
    lines = reasons.run_all(chosen.data_sets, chosen.rows or 40, chosen.seed)
    runs.log_figures({f"reasons {name}": vars(line) for name, line in lines.items()})
    promised = [(name, gate) for name, line in lines.items() for gate in line.gates]
    print(f"\n=== Reasons beside shap's TreeExplainer\n\n{reasons.table(lines)}\n{told(promised)}")
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what in reasons.TRUE and not gate.kept]


def run_monitoring(chosen: Options) -> list[str]:
    """Monitor generated traces; return the promises about false alarms that were broken."""
    line = monitoring.run(chosen.rows or monitoring.RUNS, chosen.seed)
    runs.log_figures({"monitoring": vars(line)})
    print(f"\n=== Monitoring of generated traces\n\n{monitoring.table(line)}")
    print(told([("monitoring", gate) for gate in line.gates]))
    return [f"BROKEN {gate}" for gate in line.gates if gate.what in monitoring.TRUE and not gate.kept]


def run_portfolio(chosen: Options) -> list[str]:
    """Explain thousands of rows in one call; return the answers that differ from those of calls of few rows."""
    lines: dict[str, portfolio.Line] = {}
    promised: list[tuple[str, Gate]] = []
    for data, model in product(chosen.data_sets, chosen.models or portfolio.MODELS):
        name = f"{data} / {model}"
        lines[name] = portfolio.run(data, model, chosen.rows or portfolio.ROWS, chosen.seed)
        promised += [(name, gate) for gate in lines[name].gates(model)]
    runs.log_figures({f"portfolio {name}": vars(line) for name, line in lines.items()})
    print(f"\n=== Thousands of rows in one call\n\n{portfolio.table(lines)}\n{told(promised)}")
    beside = {}
    for name in ("xgboost 100 x 6", "forest 100 x 8"):
        case = tree_cases.credit(name, tree_cases.CREDIT[name](chosen.seed), chosen.seed)
        beside[case.name] = portfolio.beside(case, chosen.rows or portfolio.ROWS, chosen.seed)
    print(f"\n=== Thousands of rows in one call, beside rivals\n\n{portfolio.table(beside)}")
    print(told([(name, gate) for name, one in beside.items() for gate in one.gates]))
    return [
        f"BROKEN: {one.different} rows are answered otherwise ({name})" for name, one in lines.items() if one.different
    ]


def run_regions(chosen: Options) -> list[str]:
    """Widen counterfactuals of Credit beside treecf; return the promises that were broken: none is about speed."""
    name = "xgboost 100 x 6"
    case = tree_cases.credit(name, tree_cases.CREDIT[name](chosen.seed), chosen.seed)
    lines = regions.run(tree_cases.first(case, chosen.rows or regions.ROWS), chosen.seed)
    runs.log_figures({f"regions {method}": vars(line) for method, line in lines.items()})
    print(f"\n=== Regions beside treecf\n\n{regions.table(lines)}")
    print(told([(case.name, gate) for gate in regions.gates(lines)]))
    return []


PARTS: Mapping[str, Callable[[Options], list[str]]] = {
    "autolog": autolog.run_autolog,
    "contest": run_contest,
    "endpoint": endpoints.run_endpoint,
    "exact": run_exact,
    "feedback": beside_papers.run_feedback,
    "further": run_further,
    "hard": run_hard,
    "levers": run_levers,
    "load": run_load,
    "monitoring": run_monitoring,
    "ocl": beside_papers.run_ocl,
    "page": page.run_page,
    "paper": beside_papers.run_paper,
    "plans": beside_papers.run_plans,
    "portfolio": run_portfolio,
    "programs": run_programs,
    "proofs": run_proofs,
    "reasons": run_reasons,
    "regions": run_regions,
    "several": several.run_several,
    "survival": run_survival,
    "swarm": beside_papers.run_swarm,
    "synthetic": beside_papers.run_synthetic,
    "trees": run_trees,
}


def _list_of(known: Sequence[str], default: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names or list(default)

    return read


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
