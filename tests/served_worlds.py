"""Inference tables and frames of traces as a server would leave them, with drift where it is wanted."""

import json

import numpy as np
import pandas as pd

START = pd.Timestamp("2026-01-05")  # a Monday
FEATURES = ("income", "debts", "job", "savings", "owner", "hours")
ADVISED = (0.5, 0.3, 0.2, 0.15, 0.1, 0.02)
PER_REQUEST = 1.6  # rows, on average


def table(lines: int, windows: int = 4, seed: int = 0, moved: dict[str, float] | None = None) -> pd.DataFrame:
    """Return an inference table of so many answers over so many weeks; in the last one some features are advised to
    other shares (`moved`)."""
    rng = np.random.default_rng(seed)
    request = np.sort(rng.integers(0, max(int(lines / PER_REQUEST), 1), lines))
    week = np.sort(rng.random(request[-1] + 1))[request] * windows
    shares = np.tile(ADVISED, (lines, 1))
    for name, share in (moved or {}).items():
        shares[week >= windows - 1, FEATURES.index(name)] = share
    together = rng.random(request[-1] + 1)[request]  # rows of one request are alike
    hit = np.where(rng.random((lines, 1)) < 0.3, together[:, None], rng.random((lines, len(FEATURES)))) < shares
    hit[~hit.any(axis=1), 0] = True
    status = rng.choice(["found", "infeasible", "budget", "already", "busy"], lines, p=[0.7, 0.1, 0.04, 0.14, 0.02])
    found = status == "found"
    n_changed = hit.sum(axis=1)
    names = np.array(FEATURES)
    return pd.DataFrame(
        {
            "time": START + pd.to_timedelta(week * 7, unit="D"),
            "request": [f"r{one}" for one in request],
            "model": "m-1",
            "status": status,
            "distance": np.where(found, rng.gamma(2, 0.02, lines) * n_changed, np.nan),
            "n_changed": np.where(found, n_changed, np.nan),
            "proof": np.where(found, rng.choice(["optimal", "bounded", "none"], lines, p=[0.8, 0.15, 0.05]), ""),
            "seconds": np.where(np.isin(status, ["already", "busy"]), np.nan, rng.lognormal(-4, 0.6, lines)),
            "changed": [names[own].tolist() if ok else None for own, ok in zip(hit, found, strict=True)],
            "sex": rng.choice(["f", "m"], lines, p=[0.4, 0.6]),
        }
    )


def frame(lines: pd.DataFrame) -> pd.DataFrame:
    """Return an inference table as `mlflow.search_traces` would return its traces; those without one are counted."""
    traced = ~lines["status"].isin(["already", "busy", "skipped"])
    others = pd.crosstab(lines.loc[~traced, "request"], lines.loc[~traced, "status"])
    counts = {str(one): {k: int(v) for k, v in row.items() if v} for one, row in others.iterrows()}
    tags, times, said = [], [], set()
    for line in lines[traced].to_dict("records"):
        facts = {"seconds": line["seconds"]}
        if line["status"] == "found":
            facts |= {name: line[name] for name in ("distance", "n_changed", "proof", "changed")}
        own = {
            "cf.status": line["status"],
            "cf.request": line["request"],
            "cf.model_id": line["model"],
            "cf.group.sex": line["sex"],
            "cf.facts": json.dumps(facts),
        }
        if line["request"] in counts and line["request"] not in said:
            said.add(line["request"])
            own["cf.untraced"] = json.dumps(counts[line["request"]])
        tags.append(own)
        times.append(int(line["time"].timestamp() * 1000))
    return pd.DataFrame({"trace_id": [f"tr-{at}" for at in range(len(tags))], "request_time": times, "tags": tags})
