"""The parts of the benchmark that set an explainer beside the figures of its paper."""

from __future__ import annotations

import argparse

import mlflow
import pandas as pd
from cases.data_sets import PAPER_VIEWS, data_folder, folder, load_case
from parts import feedback, ocl, paper, plans, runs, swarm, synthetic
from parts.gates import told


def run_paper(chosen: argparse.Namespace) -> list[str]:
    """Run GeCo on the data sets of its paper; return the promises that were broken."""
    broken: list[str] = []
    for name in (name for name in chosen.data_sets if name in PAPER_VIEWS):
        report = paper.run(load_case(name, chosen.rows or 100, chosen.seed), chosen.seed)
        with mlflow.start_run(run_name=f"{name} as in the paper", nested=True):
            runs.log_figures({**report.measured, **{f"regime {key}": told for key, told in report.regimes.items()}})
        broken += [f"{line} ({name} as in the paper)" for line in report.broken]
    return broken


def run_synthetic(chosen: argparse.Namespace) -> list[str]:
    """Run GeCo on the synthetic classifiers of its paper; return the promises that were broken."""
    rows = pd.read_csv(data_folder() / "credit.csv").iloc[:, :-1]
    return synthetic.run(rows, chosen.rows or 30, chosen.seed)


def run_ocl(chosen: argparse.Namespace) -> list[str]:
    """Run CE-OCL on the data sets of its paper; return the promises that were broken."""
    names = tuple(name for name in ocl.DATA_SETS if (folder() / f"{name}.csv").is_file())
    lines = ocl.run(names, chosen.rows or 30, chosen.seed)
    promised = ocl.gates(lines)
    runs.log_figures({"ocl " + " ".join(map(str, key)): line.figures for key, line in lines.items()})
    print(f"\n=== CE-OCL beside its paper\n\n{ocl.table(lines)}\n{told(promised)}")
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what == ocl.VALID and not gate.kept]


def run_swarm(chosen: argparse.Namespace) -> list[str]:
    """Run MD-PSO beside its paper, and clock its swarm; return the promises that were broken."""
    lines = swarm.compas(chosen.rows or 25, chosen.seed)
    on_adult = swarm.adult(chosen.rows or 30, chosen.seed) if (folder() / "adult.csv").is_file() else {}
    on_wide = swarm.wide(chosen.rows or 20, chosen.seed)
    promised = swarm.gates(lines, on_adult, on_wide)
    runs.log_figures({f"swarm {name}": line.figures for name, line in lines.items()})
    print(f"\n=== MD-PSO beside its paper: COMPAS, a forest, five answers\n\n{swarm.table(lines)}\n")
    print(f"Adult, 100 boosted trees: {on_adult}\n\n300 numbers, a forest of 100 trees\n\n{swarm.wide_table(on_wide)}")
    print(told(promised))
    return [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what == "coverage" and not gate.kept]


def run_feedback(chosen: argparse.Namespace) -> list[str]:
    """Run UFCE on the data sets of its paper; what it promises is about how many rows it helps."""
    names = tuple(name for name in feedback.DATA_SETS if (folder() / f"{name}.csv").is_file())
    lines = feedback.run(names, chosen.rows or 50, chosen.seed)
    runs.log_figures({"feedback " + " ".join(map(str, key)): vars(line) for key, line in lines.items()})
    print(f"\n=== UFCE beside its paper\n\n{feedback.table(lines)}\n{told(feedback.gates(lines))}")
    return []


def run_plans(chosen: argparse.Namespace) -> list[str]:
    """Run CSCF and SCF beside a grid of all plans of two steps; return the promises that were broken."""
    names = tuple(name for name in plans.DATA_SETS if (data_folder() / f"cscf_{name}_instances.csv").is_file())
    found = plans.run(names, chosen.rows or 30, chosen.seed)
    promised = plans.gates(found)
    runs.log_figures({f"plans {one.name} {key}": line.figures() for one in found for key, line in one.lines.items()})
    runs.log_figures({f"plans {one.name}": {"nsga2_ms": one.nsga2_ms, "cscf_ms": one.ours_ms} for one in found})
    print(f"\n=== CSCF and SCF beside a grid of all plans of two steps, and their paper\n\n{plans.table(found)}\n")
    print(f"CPU milliseconds of a generation, pymoo's NSGA2 and cscf\n\n{plans.generations(found)}\n")
    print(f"Rows whose cheapest plan costs 1 % more than the grid's\n\n{plans.costlier(found)}\n{told(promised)}")
    wrong = [f"{line} ({one.name})" for one in found for some in one.lines.values() for line in some.broken]
    return wrong + [f"BROKEN {gate} ({name})" for name, gate in promised if gate.what == plans.EVERY and not gate.kept]
