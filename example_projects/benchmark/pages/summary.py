"""GeCo's CPU time beside that of dice-ml and of the model's own pipeline: a line per data set and model."""

from __future__ import annotations

from collections.abc import Mapping

from parts.gates import GECO, OVER_DICE, OVER_PIPELINE, PIPELINE, RIVAL, SAMPLING, SEARCH_MS
from parts.measures import aligned

Measured = Mapping[str, Mapping[str, float]]

HEADS = (
    "", "search ms", "promised", "95 % / median", "in one call", "one row", "two model calls",
    "dice ms", "dice / search", "promised", "dice / in one call", "dice / one row",
    "pipeline / search", "promised", "pipeline / drawing",
)  # fmt: skip


def table(measured: Mapping[tuple[str, str], Measured], model_ms: Mapping[tuple[str, str], float]) -> str:
    """Return an aligned table.

    Args:
        measured: data set and model -> method -> its figures, times in milliseconds.
        model_ms: data set and model -> time of one call of the pipeline with one row.
    """
    return aligned([list(HEADS), *(_line(pair, told, model_ms.get(pair)) for pair, told in measured.items())])


def _line(pair: tuple[str, str], told: Measured, model_ms: float | None) -> list[str]:
    data, model = pair
    own, rival = told[GECO], told.get(RIVAL, {})
    spent = [own.get("search_ms"), SEARCH_MS.get(model), own.get("search_tail"), own["batch_ms"], own["cpu_ms"]]
    floor = None if model_ms is None else 2 * model_ms
    ratios = [own.get("of_dice_search"), OVER_DICE.get(pair), own.get("of_dice_batch"), own.get("of_dice")]
    closed = _ratio(told, GECO), OVER_PIPELINE.get(model), _ratio(told, SAMPLING)
    cells = [*spent, floor, rival.get("cpu_ms"), *ratios, *closed]
    return [f"{data} / {model}", *("-" if value is None else f"{value:,.4g}" for value in cells)]


def _ratio(told: Measured, method: str) -> float | None:
    """Return the time of GeCo's search through the pipeline / that of a method on the structure."""
    times = [told.get(name, {}).get("search_ms") for name in (PIPELINE, method)]
    return None if times[0] is None or times[1] is None else times[0] / times[1]
