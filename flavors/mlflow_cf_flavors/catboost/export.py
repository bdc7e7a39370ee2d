"""What CatBoost writes about a model as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pandas as pd

from mlflow_cf.structures import NotOpenedError

Model = Any  # catboost.CatBoost and its subclasses, which carry no types
Facts = dict[str, Any]


def objective_of(model: Model) -> str:
    """Return the objective that a model was fitted with, without its parameters; empty for a sum of models."""
    metadata = model.get_metadata()
    known = json.loads(metadata["params"])["loss_function"] if "params" in metadata else {}
    return str(known.get("type", ""))


def threshold_of(model: Model) -> float | None:
    """Return the probability that the second of two classes must exceed, if it was set."""
    threshold = model.get_metadata().get("binclass_probability_threshold")
    return None if threshold is None else float(threshold)


def exported(model: Model, words: Sequence[str] = ()) -> Facts:
    """Return a model as CatBoost's own JSON, with the hashes of `words`, by which its trees know categories.

    CatBoost writes files alone: the JSON stands in a temporary folder until it is read.

    Raises:
        NotOpenedError: the model has features that the format cannot hold.
    """
    names = list(model.feature_names_)
    for kind, places in (
        ("text", model.get_text_feature_indices()),
        ("embedding", model.get_embedding_feature_indices()),
    ):
        if places:
            raise NotOpenedError(f"CatBoost's {kind} features ({', '.join(names[place] for place in places)})")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        model.save_model(str(file), format="json", pool=_pool(model, names, words) if words else None)
        return cast("Facts", json.loads(file.read_text(encoding="utf-8")))


def hashes(facts: Facts) -> dict[str, int]:
    """Return the hash of every word that was exported, as the trees hold it: a signed number of 32 bits."""
    known = facts["features_info"].get("cat_features_hash", ())
    return {one["value"]: (one["hash"] + 2**31) % 2**32 - 2**31 for one in known}


def _pool(model: Model, names: Sequence[str], words: Sequence[str]) -> Any:
    """Return rows in which every category feature has all `words`."""
    from catboost import Pool

    categories = set(model.get_cat_feature_indices())
    columns = {name: list(words) if at in categories else [0.0] * len(words) for at, name in enumerate(names)}
    return Pool(pd.DataFrame(columns), cat_features=sorted(categories), thread_count=1)
