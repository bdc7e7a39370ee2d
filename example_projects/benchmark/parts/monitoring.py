"""Monitoring of generated traces: false alarms where nothing drifts, planted drift that is found, and CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from parts.gates import Gate
from scipy import stats

from mlflow_cf import monitor

ALPHA: Final = 0.05
RUNS: Final = 200  # without drift, and half as many with it
SURE: Final = 0.99  # of the interval that false alarms must lie in
ANSWERS: Final = 750  # of a window, and of the reference
MANY: Final = 50_000  # traces whose CPU is told
WEEKS: Final = 12  # of them
LONGEST_S: Final = 10.0
FOUND: Final = 0.95  # share of planted drifts that are found
ADVISED: Final[Mapping[str, float]] = {
    "income": 0.5, "job": 0.2, "debts": 0.3, "savings": 0.15, "owner": 0.1, "hours": 0.02,
}  # fmt: skip
PLANTED: Final = 0.35  # of the advice to change the job, instead of a fifth
TRUE: Final = ("false alarms, one window", "false alarms, four windows")


@dataclass(frozen=True)
class Line:
    """What was measured.

    Attributes:
        runs: without drift, with one window to test, and as many with four.
        alarms_one, alarms_four: the share of them with a false alarm.
        found: the share of runs in which a planted drift is found, under the name of its feature.
        cpu_s: of many traces in twelve windows, once they have been fetched.
    """

    runs: int
    alarms_one: float
    alarms_four: float
    found: float
    cpu_s: float

    @property
    def gates(self) -> list[Gate]:
        """What is promised: several windows have fewer false alarms than one, never more."""
        most = float(stats.binom.ppf((1 + SURE) / 2, self.runs, ALPHA)) / self.runs
        return [
            Gate(TRUE[0], self.alarms_one, most, most=True),
            Gate(TRUE[1], self.alarms_four, most, most=True),
            Gate("planted drift that is found", self.found, FOUND),
            Gate(f"CPU s of {MANY:,} traces", self.cpu_s, LONGEST_S, most=True),
        ]


def run(runs: int, seed: int) -> Line:
    """Monitor so many generated stores without drift, half as many with it, and a large one."""
    share = [sum(_drifts(windows, seed + at, ADVISED["job"]) for at in range(runs)) / runs for windows in (1, 4)]
    planted = max(runs // 2, 1)
    found = sum("job" in _names(seed + at) for at in range(planted)) / planted
    frame = traces(MANY, WEEKS, np.random.default_rng(seed), PLANTED)
    start = time.process_time()
    monitor(frame, groups="sex", log_run=False)
    return Line(runs, *share, found, time.process_time() - start)


def traces(answers: int, weeks: int, rng: np.random.Generator, last: float) -> pd.DataFrame:
    """Return so many answers over some weeks as `mlflow.search_traces` returns traces.

    Rows of one request are alike in what they are advised. In the last week a share `last` is advised another job.
    """
    request = np.sort(rng.integers(0, max(answers * 5 // 8, 1), answers))
    week = np.sort(rng.random(int(request[-1]) + 1))[request] * weeks
    shares = np.tile(list(ADVISED.values()), (answers, 1))
    shares[week >= weeks - 1, list(ADVISED).index("job")] = last
    together = rng.random(int(request[-1]) + 1)[request]
    drawn = np.where(rng.random((answers, 1)) < 0.3, together[:, None], rng.random((answers, len(ADVISED))))
    changed = drawn < shares
    changed[~changed.any(axis=1), 0] = True
    moment = pd.Timestamp("2025-01-06") + pd.to_timedelta(week * 7, unit="D")
    tags = list(_tags(changed, request, rng))
    return pd.DataFrame({"request_time": moment.as_unit("ms").astype("int64").to_numpy(), "tags": tags})


def _tags(changed: np.ndarray, request: np.ndarray, rng: np.random.Generator) -> Iterator[dict[str, str]]:
    names = np.array(list(ADVISED))
    count = len(changed)
    status = rng.choice(["found", "infeasible", "budget"], count, p=[0.85, 0.1, 0.05])
    far, seconds = rng.gamma(2, 0.02, count) * changed.sum(axis=1), rng.lognormal(-4, 0.6, count)
    proof, sex = rng.choice(["optimal", "bounded", "none"], count, p=[0.8, 0.15, 0.05]), rng.choice(["f", "m"], count)
    for at in range(count):
        facts = {"seconds": float(seconds[at])}
        if status[at] == "found":
            own = names[changed[at]].tolist()
            facts |= {"changed": own, "n_changed": len(own), "distance": float(far[at]), "proof": str(proof[at])}
        yield {
            "cf.status": str(status[at]),
            "cf.request": f"r{request[at]}",
            "cf.model_id": "m-1",
            "cf.group.sex": str(sex[at]),
            "cf.facts": json.dumps(facts),
        }


def _drifts(windows: int, seed: int, last: float) -> bool:
    weeks = windows + 1
    frame = traces(ANSWERS * weeks, weeks, np.random.default_rng([seed, windows]), last)
    return monitor(frame, groups="sex", alpha=ALPHA, seed=seed, log_run=False).drifted


def _names(seed: int) -> set[str]:
    """Return the features whose advice is said to drift where that to change the job does."""
    frame = traces(2 * ANSWERS, 2, np.random.default_rng([seed, 9]), PLANTED)
    return set(monitor(frame, groups="sex", alpha=ALPHA, seed=seed, log_run=False).found["feature"])


def table(line: Line) -> str:
    """Return what was measured as a table."""
    return pd.DataFrame([vars(line)]).to_string(index=False, float_format="{:.3g}".format)
