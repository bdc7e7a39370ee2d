"""Other models in an artifact, under which answers must hold: each an MLflow model folder in ``robust_to/``.

The manifest seals them, and MLflow's loaders open them, like the model itself. A folder has the name of its model,
which can lead nowhere else: it has letters, digits, ``-`` and ``_`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from mlflow_cf.artifact.publish import inner
from mlflow_cf.artifact.publish.inner import Lineage
from mlflow_cf.artifact.publish.signature import inner_signature
from mlflow_cf.artifact.sources import CodePaths
from mlflow_cf.features import FeatureSpace, Table
from mlflow_cf.model.flavors import open_folder
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.versions import Version, named, opened

FOLDER: Final = "robust_to"


@dataclass(frozen=True, eq=False)
class Packed:
    """A version on its way into an artifact.

    Attributes:
        version: as its user named it; model: opened.
        folder: where its files are, or will be written to; lineage: where they are from, None if yet to be written.
    """

    version: Version
    model: OpenModel
    folder: Path
    lineage: Lineage | None

    def written(
        self, space: FeatureSpace, background: pd.DataFrame, *, allow_functions: bool, code_paths: CodePaths = ()
    ) -> Lineage:
        """Write a model that has no files yet as an MLflow model folder; return where its files are from.

        Code of its own is in the folder of the model itself, which is loaded first.
        """
        if self.lineage is not None:
            return self.lineage
        known = {feature.column: feature for feature in space.features}
        own = FeatureSpace(tuple(known[column] for column in self.model.columns or space.columns))
        self.folder.parent.mkdir(exist_ok=True)
        model = self.version.model if self.model.remote is None else self.model.remote
        signature, writing = inner_signature(own, self.model), {"code_paths": code_paths}
        with named(self.version.name):
            return inner.write(
                model, self.folder, signature, background=background, allow_functions=allow_functions, **writing
            )


def pack(versions: Sequence[Version], scratch: Path, rows: Table, output: str | None) -> list[Packed]:
    """Copy the files of models that have some into the folder `scratch`, and open all; they must answer raw `rows`.

    Raises:
        InputError: one of them cannot be fetched, or opened.
        ArtifactError: one is an explained model that is damaged.
    """
    packed = []
    for version in versions:
        folder, lineage = scratch / FOLDER / version.name, None
        with named(version.name):
            source = inner.address(version.model)
            if source is None:
                packed.append(Packed(version, opened(version, rows, output), folder, None))
                continue
            downloads = scratch / f"{FOLDER}_downloads" / version.name
            downloads.mkdir(parents=True)
            folder.parent.mkdir(exist_ok=True)
            lineage = inner.copy(source, folder, downloads, unwrap=True)
            packed.append(Packed(version, open_folder(folder, output=output, rows=rows), folder, lineage))
    return packed
