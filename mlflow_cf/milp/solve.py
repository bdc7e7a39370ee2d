"""Programs solved by HiGHS: one solver object per solve, one thread, and no output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import highspy
import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.milp.program import Program

Status = Literal["optimal", "infeasible", "limit", "failed"]
FEASIBILITY: Final = 1e-7  # by how much a row may be missed
MOST_NODES: Final = 2**31 - 1
MOST_SECONDS: Final = 1e6
LARGE: Final = 200_000  # coefficients, from which on HiGHS's presolve runs seconds over a time limit

_STATUS: Final[dict[highspy.HighsModelStatus, Status]] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",  # columns with a cost are bounded
    highspy.HighsModelStatus.kTimeLimit: "limit",
    highspy.HighsModelStatus.kSolutionLimit: "limit",
    highspy.HighsModelStatus.kIterationLimit: "limit",
}


class _Silent(highspy.Highs):
    """A solver that prints nothing: from release 1.16 on, HiGHS prints while it is constructed."""

    def enableCallbacks(self) -> None:  # noqa: N802
        """Do what the constructor does, without output."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Effort:
    """The limits of one solve.

    Attributes:
        seconds: wall-clock time; nodes: branch-and-bound nodes.
        seed: of the solver's random numbers.
    """

    seconds: float | None = None
    nodes: int = MOST_NODES
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Solved:
    """The result of a solve.

    Attributes:
        status: whether the optimum was found; or it was shown that nothing is feasible; or a limit ended the search;
            or the solver failed.
        values: (columns,) of the best solution found; None: none was.
        bound: no feasible solution costs less; -inf: unknown.
        nodes: branch-and-bound nodes that were looked at.
    """

    status: Status
    values: Floats | None = None
    bound: float = -np.inf
    nodes: int = 0


def solve(program: Program, effort: Effort) -> Solved:
    """Return the result of a solve within limits; a failure of the solver is a status, never an exception."""
    if effort.seconds is not None and effort.seconds <= 0:
        return Solved("limit")
    if not program.size:
        low, high = _joined(program.row_lower), _joined(program.row_upper)
        if (low <= FEASIBILITY).all() and (high >= -FEASIBILITY).all():
            return Solved("optimal", np.empty(0), program.objective.constant)
        return Solved("infeasible", bound=np.inf)
    solver = _Silent()  # type: ignore[no-untyped-call]
    try:
        return _run(solver, program, effort)
    except Exception:  # noqa: BLE001  whatever the solver raises, an answer is still due
        return Solved("failed")
    finally:
        solver.clear()


def solve_squares(program: Program, values: Floats, effort: Effort) -> Floats:
    """Return the optimum of the quadratic program with all integer columns fixed as in the solution `values`.

    It has squares instead of their tangents. If the solver fails, or finds nothing better, `values` are returned.
    """
    if effort.seconds is not None and effort.seconds <= 0:
        return values
    solver = _Silent()  # type: ignore[no-untyped-call]
    try:
        _set_options(solver, effort)
        solver.passModel(_as_lp(program, values))
        solver.passHessian(_hessian(program))
        solver.run()
        found = np.array(solver.getSolution().col_value)
        solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    except Exception:  # noqa: BLE001  as above
        return values
    finally:
        solver.clear()
    return found if solved and program.exact_cost(found) < program.exact_cost(values) else values


def _hessian(program: Program) -> highspy.HighsHessian:
    """Return the Hessian of all squares, which is diagonal."""
    diagonal = np.zeros(program.size)
    for square in program.squares:
        diagonal[[square.up, square.down]] += 2.0 * square.factor**2
    places = np.flatnonzero(diagonal)
    hessian = highspy.HighsHessian()
    hessian.dim_, hessian.format_ = program.size, highspy.HessianFormat.kTriangular
    hessian.start_ = np.searchsorted(places, np.arange(program.size + 1)).astype(np.int32)
    hessian.index_, hessian.value_ = places.astype(np.int32), diagonal[places]
    return hessian


def _run(solver: highspy.Highs, program: Program, effort: Effort) -> Solved:
    _set_options(solver, effort)
    lp = _as_lp(program)
    if effort.seconds is not None and len(lp.a_matrix_.value_) > LARGE:
        solver.setOptionValue("presolve", "off")
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        return Solved("failed")
    if solver.run() == highspy.HighsStatus.kError:
        return Solved("failed")
    status, info = _STATUS.get(solver.getModelStatus(), "failed"), solver.getInfo()
    discrete = any(flags.any() for flags in program.integer)
    nodes = max(int(info.mip_node_count), 1) if discrete else 1
    if status in ("infeasible", "failed"):
        return Solved(status, bound=np.inf if status == "infeasible" else -np.inf, nodes=nodes)
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if feasible else None
    bound = float(info.mip_dual_bound) if discrete else float(info.objective_function_value)
    return Solved(status, values, bound if discrete or status == "optimal" else -np.inf, nodes)


def _set_options(solver: highspy.Highs, effort: Effort) -> None:
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": effort.seed % MOST_NODES,
        "time_limit": MOST_SECONDS if effort.seconds is None else effort.seconds,
        "mip_max_nodes": min(effort.nodes, MOST_NODES),
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 1e-9,
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_feasibility_tolerance": FEASIBILITY,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)


def _as_lp(program: Program, fixed: Floats | None = None) -> highspy.HighsLp:
    """Return a program in the solver's own form, row by row.

    With a `fixed` solution, integer columns keep what they are there, and squares cost nothing.
    """
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = program.size, program.height
    objective = program.objective
    cost = np.zeros(program.size)
    np.add.at(cost, objective.columns, objective.coefficients)
    lower, upper = _joined(program.lower), _joined(program.upper)
    integer = np.concatenate([np.empty(0, dtype=np.bool_), *program.integer])
    if fixed is not None:
        lower, upper = np.where(integer, fixed.round(), lower), np.where(integer, fixed.round(), upper)
        cost[[square.column for square in program.squares]] = 0.0
        integer = np.zeros_like(integer)
    lp.col_cost_, lp.offset_, lp.col_lower_, lp.col_upper_ = cost, objective.constant, lower, upper
    lp.row_lower_, lp.row_upper_ = _joined(program.row_lower), _joined(program.row_upper)
    start, index, value = program.matrix
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = program.size, program.height
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, index, value
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    if integer.any():
        lp.integrality_ = [kinds[int(flag)] for flag in integer]
    return lp


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate([np.empty(0), *parts])
