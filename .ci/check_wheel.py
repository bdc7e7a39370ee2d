"""Check that a wheel holds our two packages, their data files and its metadata, and nothing else."""

import sys
import zipfile
from pathlib import Path, PurePosixPath

PACKAGES = {"mlflow_cf": Path("mlflow_cf"), "mlflow_cf_flavors": Path("flavors/mlflow_cf_flavors")}


def expected() -> set[str]:
    """Return the paths inside the wheel of every file of our packages in the checkout."""
    return {
        str(PurePosixPath(name, *path.relative_to(root).parts))
        for name, root in PACKAGES.items()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def main(wheel: Path) -> str | None:
    """Return what is wrong with the wheel, or None."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
    want = expected()
    stray = sorted(names - metadata - want)
    missing = sorted(want - names)
    missing += [f"{name}/py.typed" for name in PACKAGES if f"{name}/py.typed" not in names]
    if stray or missing or not metadata:
        return f"{wheel.name}: should not be there: {stray}; missing: {missing}"
    print(f"{wheel.name}: {len(want)} files of {', '.join(PACKAGES)} and {len(metadata)} of metadata, nothing else")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
