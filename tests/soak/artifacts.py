"""Check thousands of damaged and forged artifacts, and print what that took: seconds and megabytes.

    python tests/soak/artifacts.py [number]

A process checks a hundred of them; a crash of a parser ends it, and counts as a fault. It exits with 1 if an artifact
was not refused as it should be, or took longer than 1 s or more than 256 MB.
"""

import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import artifact_mutations
import numpy as np
from artifact_mutations import RUN, Mutation
from click import echo

from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.errors import ArtifactError

DEFAULT = 2_000
MOST_SECONDS = 1.0
MOST_MB = 256.0
BATCH = 100  # artifacts a process


@dataclass(frozen=True)
class Outcome:
    """What became of one artifact: `fault` is empty if that was right."""

    name: str
    loaded: bool
    seconds: float
    megabytes: float
    fault: str


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check(number: int, chosen: list[Mutation], saved: Path, scratch: Path) -> Outcome:
    """Spoil a copy, in one of the chosen ways or else by chance, and check it."""
    root = Path(shutil.copytree(saved, scratch / "copy"))
    by_chance = artifact_mutations.random_damage(np.random.default_rng(number), root)
    spoiled = chosen[number] if number < len(chosen) else by_chance
    child = os.fork()  # what a forger needs to make the files is not what refusing them takes
    if not child:
        spoiled.apply(root)
        os._exit(0)
    os.waitpid(child, 0)
    before, start, fault, loaded = peak_mb(), time.perf_counter(), "", False
    try:
        verify_folder(root)
        loaded = True
        fault = "" if spoiled.may_load else "was not refused"
    except ArtifactError:
        pass
    except BaseException as error:  # noqa: BLE001  whatever it is, it is a fault
        fault = f"{type(error).__name__}: {error}"[:200]
    seconds, megabytes = time.perf_counter() - start, peak_mb() - before
    if list(scratch.rglob(RUN)):
        fault = "ran code"
    elif not fault and (seconds > MOST_SECONDS or megabytes > MOST_MB):
        fault = "took too much"
    shutil.rmtree(scratch)
    scratch.mkdir()
    return Outcome(spoiled.name, loaded, seconds, megabytes, fault)


def batch(numbers: range, saved: Path, scratch: Path, to: Connection) -> None:
    """Check artifacts in a process of their own, and send what became of them."""
    scratch.mkdir()
    os.chdir(scratch.parent)
    verify_folder(saved)
    chosen = list(artifact_mutations.chosen())
    for number in numbers:
        to.send(number)
        to.send(check(number, chosen, saved, scratch))


def outcomes(number: int, saved: Path, folder: Path) -> Iterator[Outcome]:
    """Yield what became of so many artifacts, whatever happens to a process."""
    context = get_context("spawn")
    start = 0
    while start < number:
        receive, send = context.Pipe(duplex=False)
        numbers = range(start, min(start + BATCH, number))
        process = context.Process(target=batch, args=(numbers, saved, folder / f"from {start}", send))
        process.start()
        send.close()
        at = start
        try:
            while True:
                at = receive.recv()
                yield receive.recv()
                start = at + 1
        except EOFError:
            process.join()
        if start < numbers.stop:
            yield Outcome(f"number {at}", loaded=False, seconds=0, megabytes=0, fault=f"crashed ({process.exitcode})")
            start = at + 1


def main() -> int:
    """Check artifacts and print the figures."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
        saved = artifact_mutations.saved(folder)
        found = list(outcomes(number, saved, folder))
    faults = [one for one in found if one.fault]
    for one in faults[:20]:
        echo(f"FAULT  {one.name}: {one.fault}; {one.seconds:.2f} s, {one.megabytes:.0f} MB")
    slowest, largest = max(found, key=lambda one: one.seconds), max(found, key=lambda one: one.megabytes)
    kinds = Counter("loaded" if one.loaded else "refused" for one in found if not one.fault)
    echo(f"{len(found)} artifacts: {kinds['refused']} refused, {kinds['loaded']} sound, {len(faults)} faults")
    echo(f"slowest  {slowest.seconds:.3f} s ({slowest.name})")
    echo(f"largest  {largest.megabytes:.0f} MB on top ({largest.name})")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
