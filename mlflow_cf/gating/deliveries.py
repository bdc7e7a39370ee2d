"""Whether a delivery of MLflow's webhooks is one: signed with our secret, of these minutes, and not seen before."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SIGNATURE: Final = "x-mlflow-signature"
DELIVERY: Final = "x-mlflow-delivery-id"
TIMESTAMP: Final = "x-mlflow-timestamp"
TOLERATED_S: Final = 300.0  # between the sender's clock and ours
MOST_BYTES: Final = 65_536  # of a delivery; MLflow's are some hundred
CREATED: Final = ("model_version", "created")


class RefusedError(Exception):
    """A delivery is refused.

    Attributes:
        status: of the HTTP reply.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Version(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    version: str | int


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore")

    entity: str
    action: str
    data: dict[str, object] = Field(default_factory=dict)


class Deliveries:
    """Checks deliveries, and remembers those of the last minutes; threads may share it.

    MLflow signs ``"{delivery id}.{timestamp}.{body}"`` with HMAC-SHA256, and sends ``"v1,"`` and that in base64.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """Set up for the secret that the webhook was created with."""
        self._secret, self._clock = secret.encode(), clock
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def read(self, headers: Mapping[str, str], body: bytes) -> tuple[str, str] | None:
        """Return the registered name and version that a delivery announces; None: nothing new, or something else.

        Raises:
            RefusedError: it is too large, not signed with the secret, too old or from the future, or no event.
        """
        if len(body) > MOST_BYTES:
            raise RefusedError(413, f"more than {MOST_BYTES} bytes")
        delivery, sent = headers.get(DELIVERY, ""), headers.get(TIMESTAMP, "")
        wanted = hmac.new(self._secret, f"{delivery}.{sent}.".encode() + body, hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(wanted).decode()}"
        if not hmac.compare_digest(signature.encode(), headers.get(SIGNATURE, "").encode("utf-8", "replace")):
            raise RefusedError(401, "not signed with the secret of this gate")
        if not sent.isdecimal() or abs(self._clock() - int(sent)) > TOLERATED_S:
            raise RefusedError(401, f"signed more than {TOLERATED_S:g} s from now by this clock")
        try:
            event = _Event.model_validate_json(body)
            announced = _Version.model_validate(event.data) if (event.entity, event.action) == CREATED else None
        except ValidationError:
            raise RefusedError(422, "no event of a registry") from None
        if not self._new(delivery) or announced is None:
            return None
        return announced.name, str(announced.version)

    def forget(self, delivery: str) -> None:
        """Let a delivery come again: it could not be taken."""
        with self._lock:
            self._seen.pop(delivery, None)

    def _new(self, delivery: str) -> bool:
        now = self._clock()
        with self._lock:
            self._seen = {one: at for one, at in self._seen.items() if now - at <= 2 * TOLERATED_S}
            new = delivery not in self._seen
            self._seen.setdefault(delivery, now)
        return new
