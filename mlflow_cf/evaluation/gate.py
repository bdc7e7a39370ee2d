"""Thresholds of a gate as they are written on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mlflow.models import MetricThreshold

from mlflow_cf.errors import InputError

_WRITTEN: Final = re.compile(
    r"\s*(?P<metric>.+?)\s*(?P<sign>>=|<=)\s*(?P<value>[-+]?[\d.]+(?:e[-+]?\d+)?)\s*", re.IGNORECASE
)


def read_thresholds(written: Iterable[str]) -> dict[str, MetricThreshold]:
    """Return MLflow's thresholds for texts such as ``"cf/coverage>=0.9"`` and ``"cf/n_changed<=2"``.

    Raises:
        InputError: another form, or two thresholds of one metric.
    """
    found: dict[str, MetricThreshold] = {}
    for text in written:
        match = _WRITTEN.fullmatch(text)
        try:
            value = float(match["value"]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            raise InputError("threshold", f"{text!r} is no metric, >= or <=, and number", "such as 'cf/coverage>=0.9'")
        if match["metric"] in found:
            raise InputError("threshold", f"{match['metric']!r} has two", "name one")
        found[match["metric"]] = MetricThreshold(threshold=value, greater_is_better=match["sign"] == ">=")
    return found
