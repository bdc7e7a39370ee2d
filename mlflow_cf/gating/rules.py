"""What a new version of a registered model must reach, read from a YAML file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Final

import mlflow
import pandas as pd
import yaml
from mlflow.exceptions import MlflowException
from mlflow.models import MetricThreshold
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.evaluation.compare.comparison import read_thresholds
from mlflow_cf.files.tables import read_table
from mlflow_cf.validation import validated

URI: Final = re.compile(r"[a-z][a-z0-9+.-]+:/")  # of an artifact; drives of Windows have one letter
RESERVED: Final = re.compile(r"latest|v\d+", re.IGNORECASE)  # MLflow reads these as versions, not as aliases
Name = Annotated[str, Field(min_length=1)]


def _no_version(alias: str) -> str:
    if RESERVED.fullmatch(alias):
        raise PydanticCustomError("alias", "names a version to MLflow, and is no alias")
    return alias


Alias = Annotated[str, Field(pattern=r"^[\w\-]+$"), AfterValidator(_no_version)]


class GateRules(BaseModel):
    """What versions of one registered model are compared on, and what a new one must reach.

    Attributes:
        rows: the stored table that versions explain: a .csv, .json or .parquet file, or the URI of such an artifact.
        thresholds: such as ``"cf/survival >= 0.9"``, over every metric of a comparison.
        alias: moves to a version that passes; the version that it names is the one to compare with.
        labels: column of the rows with the true targets.
        groups: columns by which figures are split.
        count, seed, max_evaluations, time_limit_s, certify: as in `mlflow_cf.compare`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Name
    thresholds: Annotated[tuple[Name, ...], Field(min_length=1)]
    alias: Alias = "champion"
    labels: Name | None = None
    groups: tuple[Name, ...] = ()
    count: Annotated[int, Field(ge=1)] = 1
    seed: int | None = None
    max_evaluations: Annotated[int, Field(ge=1)] | None = None
    time_limit_s: Annotated[float, Field(gt=0)] | None = None
    certify: bool = False

    def wanted(self) -> dict[str, MetricThreshold]:
        """Return the thresholds by metric.

        Raises:
            InputError: one that cannot be read, or two of one metric.
        """
        return read_thresholds(self.thresholds)

    def table(self, texts: Collection[str] = ()) -> tuple[pd.DataFrame, str]:
        """Return the rows, in which `texts` are columns of text, and a digest of them and of these rules.

        Raises:
            InputError: there is no such table, or it cannot be read.
        """
        path = Path(self.rows)
        if URI.match(self.rows):
            try:
                path = Path(mlflow.artifacts.download_artifacts(self.rows))
            except (MlflowException, OSError) as error:
                raise InputError("rows", f"{self.rows} cannot be fetched: {error}", "name an artifact") from None
        table = read_table(path, "rows", texts)
        written = self.model_dump_json(exclude={"rows"}).encode() + path.read_bytes()
        return table, hashlib.sha256(written).hexdigest()[:16]


def read_rules(path: Path) -> dict[str, GateRules]:
    """Return the rules by registered model; files of rows are found beside the file.

    Raises:
        InputError: no such file, no YAML, or what is wrong with it.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "name a YAML file of rules") from None
    if not isinstance(content, dict) or not content:
        raise InputError(str(path), "has no registered models", "write one per key, each with rows and thresholds")
    found = {}
    for name, given in content.items():
        rules = validated(GateRules, given, str(name))
        rules.wanted()
        own = rules.rows if URI.match(rules.rows) else str(path.parent / rules.rows)
        found[str(name)] = rules.model_copy(update={"rows": own})
    return found


def rules_for(name: str, rules: Mapping[str, GateRules]) -> GateRules:
    """Return the rules of a registered model.

    Raises:
        InputError: there are none.
    """
    if name not in rules:
        raise InputError(name, "has no rules", did_you_mean(name, rules, "of the models with rules"))
    return rules[name]
