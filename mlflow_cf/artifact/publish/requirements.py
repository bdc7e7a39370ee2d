"""What an artifact needs where it runs: one list of pip requirements, and the wheels that no index has."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from mlflow_cf.errors import InputError
from mlflow_cf.version import VERSION

OWN: Final = "mlflow-cf"
PIN: Final = f"{OWN}=={VERSION}"
WHEELS: Final = "wheels"  # folder of the artifact; pip and uv look it up beside the file of requirements that names it
_WHEEL: Final = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)(?:-[^-]+){3,4}\.whl")
_DISTRIBUTION: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_logger = logging.getLogger(__name__)

Given = str | Sequence[str] | None


@dataclass(frozen=True)
class PipRequirements:
    """Lines of a file of requirements, and the wheels that belong into the folder `WHEELS` beside it."""

    lines: list[str]
    wheels: tuple[Path, ...] = ()


def check(given: Given) -> None:
    """Refuse what names no requirements.

    Raises:
        InputError: a path without a file, or no list of texts.
    """
    if isinstance(given, str):
        if not Path(given).is_file():
            fix = f"pass the path of a requirements file, or a list: [{given!r}]"
            raise InputError("pip_requirements", f"there is no file {given!r}", fix)
        return
    if given is not None and not isinstance(given, Sequence):
        raise InputError("pip_requirements", f"a {type(given).__name__} is not a list", "pass a list of texts")
    for place, line in enumerate(given or ()):
        if not isinstance(line, str):
            raise InputError(f"pip_requirements[{place}]", f"must be a text, got {line!r}", f"write {str(line)!r}")


def requirements(folders: Sequence[Path], given: Given, further: Sequence[str] = ()) -> PipRequirements:
    """Return mlflow-cf's requirement and those `given` by the user, or else those of the models in `folders`.

    Args:
        folders: MLflow model folders, that of the model itself first.
        given: the path of a requirements file, or a list. Wheels in it, and a requirement of mlflow-cf, come on top
            of the model's own where nothing else is in the list. Of two that name one distribution the first stays.
        further: what else our own part needs.

    Raises:
        InputError: a wheel that is not there, or one of another version of mlflow-cf.
    """
    if isinstance(given, str):
        return PipRequirements([PIN, *further, f"-r {given}"])
    wheels = tuple(Path(line) for line in given or () if _is_wheel(line))
    pins = [_pin(wheel) for wheel in wheels]
    others = [line for line in given or () if not _is_wheel(line)]
    own = [line for line in [*pins, *others] if _distribution(line) == OWN] or [PIN]
    rest = [line for line in others if _distribution(line) != OWN]
    if given is None or (given and not rest):
        rest = [line for folder in folders for line in _of_the_model(folder)]
    looked_up = [f"--find-links {WHEELS}"] if wheels else []
    kept: dict[str, str] = {}
    for line in map(str.strip, [*looked_up, *own, *pins, *rest, *further]):
        if line and not line.startswith("#"):
            kept.setdefault(_distribution(line) or line, line)
    return PipRequirements(list(kept.values()), wheels)


def warn_of_pin(given: Given) -> None:
    """Log what to do if mlflow-cf is pinned to a version that came from no index, so that none may have it."""
    lines = [] if given is None or isinstance(given, str) else given
    address = _address()
    if address is None or any(_distribution(Path(line).name if _is_wheel(line) else line) == OWN for line in lines):
        return
    here = address.startswith("file://") and address.endswith(".whl")
    wheel = address.removeprefix("file://") if here else f"dist/mlflow_cf-{VERSION}-py3-none-any.whl"
    _logger.warning(
        "the logged model requires %s, and this one was installed from %s: where no index has it, the model cannot be "
        "served in an environment of its own; let it bring a wheel along: pip_requirements=[%r]",
        PIN,
        address,
        wheel,
    )


def _address() -> str | None:
    """Return where this distribution was installed from; None: from an index."""
    try:
        written = distribution(OWN).read_text("direct_url.json")
    except PackageNotFoundError:
        return Path(__file__).parents[2].as_uri()
    return None if written is None else str(json.loads(written)["url"])


def _is_wheel(line: str) -> bool:
    return line.endswith(".whl") and "://" not in line


def _pin(wheel: Path) -> str:
    named = _WHEEL.fullmatch(wheel.name)
    if named is None or not wheel.is_file():
        raise InputError("pip_requirements", f"there is no wheel {str(wheel)!r}", "pass the path of one that was built")
    pin = f"{_normal(named[1])}=={named[2]}"
    if _normal(named[1]) == OWN and pin != PIN:
        raise InputError(
            "pip_requirements", f"{wheel.name} is not version {VERSION}", "build the wheel of this version"
        )
    return pin


def _of_the_model(folder: Path) -> list[str]:
    file = folder / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    constraints = f"-c {folder / 'constraints.txt'}"  # relative to the working directory otherwise
    return [constraints if line.strip() == "-c constraints.txt" else line for line in lines]


def _distribution(line: str) -> str:
    """Return the normal form of the name a requirement or the name of a wheel begins with, "" if it does not."""
    found = _WHEEL.fullmatch(line) or _DISTRIBUTION.match(line)
    return _normal(found[1]) if found else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
