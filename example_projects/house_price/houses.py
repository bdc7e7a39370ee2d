"""Made-up sales of houses by a known formula, and what can be done to a house, for how much.

`price` says what a house is worth; what it is sold for scatters around that by 4 %. No house is real, and the prices
are those of no town.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

PRICE = "price"
THIS_YEAR = 2026
PLACES = {"village": 0.75, "suburb": 1.0, "town": 1.2, "lakeside": 1.5}  # what it does to the price of a square metre
HEATING = {"oil": -6_000, "gas": 0, "heat pump": 10_000}  # EUR
FEATURES = {
    "land": {"unit": "m2"},
    "living_area": {"unit": "m2"},
    "energy_use": {"unit": "kWh/m2"},
    "kitchen_age": {"unit": "year", "units": "years"},
}
CONSTRAINTS = {
    "immutable": ["place", "year_built", "land"],
    "increasing": ["living_area", "bathrooms"],
    "decreasing": ["energy_use", "kitchen_age"],
    "ranges": {"bathrooms": [1, 3], "energy_use": [50, 350]},
    "actions": [  # x is the house before, x_cf after the work; an effort of 1 is a bill of 1,000 EUR
        {
            "name": "convert the loft",
            "feature": "loft",
            "kind": "choose",
            "levels": ["converted"],
            "before": ['x.loft == "empty"'],
            "effects": {"living_area": "x.living_area + 25"},
            "effort": "38",
        },
        {
            "name": "insulate",
            "feature": "energy_use",
            "low": -160,
            "high": -20,
            "effort": "6 + 0.18 * (x.energy_use - x_cf.energy_use)",
        },
        {
            "name": "install a heat pump",
            "feature": "heating",
            "kind": "choose",
            "levels": ["heat pump"],
            "effects": {"energy_use": "max(50, floor(0.8 * x.energy_use))"},
            "effort": "24",
        },
        {
            "name": "add a bathroom",
            "feature": "bathrooms",
            "low": 1,
            "high": 2,
            "effort": "15 * (x_cf.bathrooms - x.bathrooms)",
        },
        {"name": "replace the kitchen", "feature": "kitchen_age", "kind": "choose", "levels": [0], "effort": "17"},
    ],
    "relationships": [  # an insulated house needs a smaller heat pump
        {"from": "energy_use", "to": "heating", "cases": [["x.energy_use <= 120", 0.6], ["x.energy_use <= 160", 0.8]]}
    ],
}


def houses(rows: int, seed: int) -> pd.DataFrame:
    """Return `rows` houses and what they were sold for, in EUR; the same seed gives the same rows."""
    rng = np.random.default_rng(seed)
    year = rng.integers(1930, THIS_YEAR, rows)
    area = np.clip(rng.normal(128, 30, rows), 60, 260).round()
    use = np.clip(280 - 1.9 * (year - 1930) + rng.normal(0, 40, rows), 50, 350).round()
    table = pd.DataFrame(
        {
            "place": rng.choice(list(PLACES), rows, p=[0.3, 0.35, 0.25, 0.1]),
            "year_built": year,
            "land": np.clip(rng.lognormal(6.2, 0.4, rows), 120, 1_500).round(-1).astype(int),
            "living_area": area.astype(int),
            "bathrooms": np.clip(np.round(area / 90 + rng.normal(0, 0.5, rows)), 1, 3).astype(int),
            "energy_use": use.astype(int),
            "heating": np.where(use < 110, "heat pump", np.where(rng.random(rows) < 0.6, "gas", "oil")),
            "kitchen_age": np.minimum(rng.exponential(12, rows), THIS_YEAR - year).astype(int),
            "loft": rng.choice(["none", "empty", "converted"], rows, p=[0.4, 0.35, 0.25]),
        }
    )
    heat_pump = rng.random(rows) < 0.15  # some are put into old houses
    table.loc[heat_pump, "heating"] = "heat pump"
    table[PRICE] = (price(table) * rng.lognormal(0, 0.04, rows)).round(-2)
    return table


def price(table: pd.DataFrame) -> pd.Series:
    """Return what houses are worth (n,), in EUR."""
    place = table["place"].map(PLACES).astype(float)
    inside = place * table["living_area"] * (2_300 - 3.5 * (THIS_YEAR - table["year_built"]))
    outside = place * 110 * table["land"]
    equipment = 16_000 * table["bathrooms"] - 1_100 * table["kitchen_age"].clip(upper=25)
    energy = table["heating"].map(HEATING).astype(float) - 260 * (table["energy_use"] - 100)
    return (inside + outside + equipment + energy).rename(PRICE)
