"""What a gate reads from and writes to the model registry: the champion, a version's verdict, and whose turn it is."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import mlflow
import requests
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_STATE

from mlflow_cf.errors import CounterfactualError, InputError

TAG: Final = "cf.gate."
CLAIM: Final = f"{TAG}claim"  # of the registered model: one gate at a time
CLAIMED_S: Final = 120.0  # after which a claim that nobody renews is that of a gate that died
RENEWED_S: Final = 20.0
SETTLED_S: Final = 0.5  # after writing a claim: of two that were written at once, the later one stands
LONGEST: Final = 1_000  # characters of a tag
MOVING: Final = "moving"  # it passed, and the alias is still to move
UNFINISHED: Final = ("waiting", "running", MOVING)


class UndecidedError(CounterfactualError):
    """A gate could not decide: the registry cannot be reached, another gate is at work, or the champion changed."""

    CODE = INVALID_STATE


@contextmanager
def reached() -> Iterator[None]:
    """Turn what goes wrong with the registry into an `UndecidedError`."""
    try:
        yield
    except CounterfactualError:
        raise
    except (MlflowException, requests.RequestException, OSError) as error:
        uri = mlflow.get_registry_uri()
        raise UndecidedError("registry", f"{type(error).__name__} at {uri}: {error}", "try again") from error


@dataclass(frozen=True)
class Registry:
    """One registered model and the alias that is gated.

    Attributes:
        name: of the registered model; alias: that moves.
    """

    name: str
    alias: str

    @property
    def client(self) -> MlflowClient:
        """MLflow's client of the tracking and registry URIs that are set."""
        return MlflowClient()

    def version(self, version: str) -> ModelVersion:
        """Return a version by its number or one of its aliases.

        Raises:
            InputError: there is none; UndecidedError: the registry cannot be reached.
        """
        with reached():
            try:
                if version.isdigit():
                    return self.client.get_model_version(self.name, version)
                return self.client.get_model_version_by_alias(self.name, version)
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    raise
                raise InputError(f"{self.name}/{version}", "is no version", "name one that is registered") from None

    def champion(self) -> str | None:
        """Return the number of the version that has the alias; None: no version has it."""
        with reached():
            try:
                return str(self.client.get_model_version_by_alias(self.name, self.alias).version)
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    raise
                return None

    def promote(self, version: str) -> None:
        """Move the alias."""
        with reached():
            self.client.set_registered_model_alias(self.name, self.alias, version)

    def note(self, version: str, **told: str) -> None:
        """Write tags of a version."""
        with reached():
            for key, value in told.items():
                self.client.set_model_version_tag(self.name, version, f"{TAG}{key}", value[:LONGEST])

    def told(self, version: str) -> dict[str, str]:
        """Return what an earlier gate has noted of a version."""
        tags = self.version(version).tags
        return {key.removeprefix(TAG): value for key, value in tags.items() if key.startswith(TAG)}

    def unfinished(self) -> list[str]:
        """Return the versions whose gate was asked for and has not decided, oldest first."""
        with reached():
            found = mlflow.search_model_versions(filter_string=f"name='{self.name}'")
        left = [one for one in found if one.tags.get(f"{TAG}state") in UNFINISHED]
        return sorted((str(one.version) for one in left), key=int)

    @contextmanager
    def claimed(self) -> Iterator[Claim]:
        """Hold the registered model's claim for the time of a `with` block.

        Raises:
            UndecidedError: another gate holds it, or the registry cannot be reached.
        """
        claim = Claim(self, uuid.uuid4().hex)
        claim.take()
        stop = threading.Event()
        renewing = threading.Thread(target=claim.renew, args=(stop,), name="mlflow-cf gate", daemon=True)
        renewing.start()
        try:
            yield claim
        finally:
            stop.set()
            renewing.join()
            claim.give_back()


@dataclass
class Claim:
    """A tag of the registered model that says which gate is at work, and since when it was last alive.

    Attributes:
        registry: whose; token: tells this gate from others.
    """

    registry: Registry
    token: str

    def take(self) -> None:
        """Write the claim, unless another gate is alive.

        Raises:
            UndecidedError: another one is.
        """
        with reached():
            holder, since = self._held()
            if holder is not None and abs(time.time() - since) < CLAIMED_S:  # clocks may be ahead
                raise self._other()
            self._write()
            time.sleep(SETTLED_S)
        self.check()

    def check(self) -> None:
        """Raise unless the claim is still this gate's.

        Raises:
            UndecidedError: another gate has taken it.
        """
        with reached():
            if self._held()[0] != self.token:
                raise self._other()

    def renew(self, stop: threading.Event) -> None:
        """Say that this gate is alive, until it is told to stop; a claim that was taken over stays so."""
        while not stop.wait(RENEWED_S):
            with suppress(UndecidedError), reached():
                if self._held()[0] != self.token:
                    return
                self._write()

    def give_back(self) -> None:
        """Let others; a registry that cannot be reached sees the claim grow old."""
        with suppress(UndecidedError), reached():
            if self._held()[0] == self.token:
                self.registry.client.delete_registered_model_tag(self.registry.name, CLAIM)

    def _write(self) -> None:
        self.registry.client.set_registered_model_tag(self.registry.name, CLAIM, f"{self.token} {time.time():.0f}")

    def _held(self) -> tuple[str | None, float]:
        tags = self.registry.client.get_registered_model(self.registry.name).tags
        token, _, since = tags.get(CLAIM, "").partition(" ")
        try:
            return token or None, float(since)
        except ValueError:
            return None, 0.0

    def _other(self) -> UndecidedError:
        fact, fix = "another gate is at work", f"ask again when it is done; after {CLAIMED_S:g} s without it"
        return UndecidedError(self.registry.name, fact, fix)
