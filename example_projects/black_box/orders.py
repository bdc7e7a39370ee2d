"""Made-up orders of a web shop, and whether their invoices were paid; they describe nobody."""

from __future__ import annotations

import numpy as np
import pandas as pd

PAID = "paid"
CONSTRAINTS = {
    "immutable": ["age", "months_known", "returns"],
    "decreasing": ["order_value", "items", "open_reminders"],  # a smaller basket, a reminder settled
    "relative": {"order_value": {"down_percent": 50}},
    "max_changes": 3,
}
FEATURES = {"order_value": {"unit": "EUR", "decimals": 0}, "returns": {"unit": "%", "units": "%"}}


def orders(rows: int, seed: int) -> pd.DataFrame:
    """Return `rows` orders; the same seed gives the same rows."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": np.clip(rng.normal(41, 13, rows), 18, 85).astype(int),
            "months_known": np.minimum(rng.exponential(20, rows), 120).astype(int),
            "order_value": np.clip(rng.lognormal(5.3, 0.8, rows), 10, 2_000).round(-1),
            "items": rng.integers(1, 8, rows),
            "returns": np.clip(rng.normal(30, 20, rows), 0, 90).round(),
            "open_reminders": rng.poisson(0.5, rows),
            "delivery": rng.choice(["home", "parcel shop", "another address"], rows, p=[0.6, 0.25, 0.15]),
            "express": rng.random(rows) < 0.3,
        }
    )
    points = (
        2.2
        - table["order_value"] / 350
        - 0.9 * table["open_reminders"]
        + 0.02 * table["months_known"]
        - 0.02 * table["returns"]
        - 0.9 * (table["delivery"] == "another address")
        - 0.4 * table["express"]
    )
    table[PAID] = (points + rng.logistic(0, 0.5, rows) > 0).astype(int)
    return table
