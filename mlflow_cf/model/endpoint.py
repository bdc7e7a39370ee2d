"""The address or name of a model that another server answers for, and how it may be asked.

Nothing secret is kept: headers name environment variables, whose values are read when a request is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from mlflow_cf.validation import Number, UserModel

ADDRESS: Final = re.compile(r"https?://|endpoints:/|deployments:/", re.IGNORECASE)
_DEPLOYED: Final = re.compile(r"(endpoints|deployments):/([A-Za-z0-9][A-Za-z0-9._-]{0,127})")
_TARGET: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}(:[A-Za-z0-9:/._+-]{0,400})?")
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")  # of a header, by RFC 9110
_TELLTALE: Final = re.compile(r"auth|token|secret|password|credential|cookie|api-?key|signature", re.IGNORECASE)
_SCHEME: Final = re.compile(r"(?:[A-Za-z][A-Za-z-]{0,15} )?")  # "Bearer ", and nothing else beside a variable
_RANDOM: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_.~-]{20,}")
OURS: Final = frozenset({"content-type", "content-length", "host", "accept-encoding", "transfer-encoding"})

Change = Literal["refuse", "warn"]
Seconds = Annotated[Number, Field(gt=0, le=3_600)]
Rate = Annotated[Number, Field(gt=0, le=1_000_000)]


def _address(url: str) -> str:
    """Return an address without credentials, unencrypted only within this machine, or the name of an endpoint."""
    if _DEPLOYED.fullmatch(url):
        return url
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise PydanticCustomError("url", "is no address") from error
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url):
        raise PydanticCustomError("url", "must be an address such as https://host/invocations, or endpoints:/name")
    if parts.scheme == "http" and not is_loopback(host):
        raise PydanticCustomError("url", "must be https: rows would travel unencrypted")
    if parts.username is not None or parts.password is not None:
        raise PydanticCustomError("url", "must hold no user and no password: name a variable in `headers`")
    if parts.query or parts.fragment:
        raise PydanticCustomError("url", "must have no part from ? or # on: it may hold a secret, name it in `headers`")
    return url


def _target(target: str) -> str:
    """Return a target of MLflow's deployments clients that holds no credentials."""
    if not _TARGET.fullmatch(target):
        raise PydanticCustomError("target", "must be a target such as databricks, without user, password and query")
    return _address(target) if re.match(r"https?:", target, re.IGNORECASE) else target


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_secrets(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers that hold no secret, as far as that can be seen."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not value.isprintable() or len(value) > 1_024:
            raise PydanticCustomError("header", "{name} is no header", {"name": repr(name[:64])})
        if name.lower() in OURS:
            raise PydanticCustomError("header", "{name} is set here", {"name": name})
        literal = VARIABLE.sub("", value)
        secret = _TELLTALE.search(name) and not (literal != value and _SCHEME.fullmatch(literal))
        if secret or any(map(_RANDOM.fullmatch, literal.split())):
            message = "{name} looks like a secret, which an artifact must not hold: write ${{VARIABLE}} in its place"
            raise PydanticCustomError("header", message.replace("{{", "{").replace("}}", "}"), {"name": name})
    return dict(headers)


class Endpoint(UserModel):
    """A model that answers at an address, as MLflow's model servers do: the body is ``{"dataframe_split": ...}``.

    Attributes:
        url: where rows are posted; https, or http on this machine. Or ``endpoints:/name`` (``deployments:/name`` for
            clients that know deployments, not endpoints): rows go through MLflow's deployments client.
        target: of that client, such as ``databricks``; None: what MLFLOW_DEPLOYMENTS_TARGET says when rows are sent.
        headers: sent with every call; ``${NAME}`` in a value is read from the environment variable when it is sent.
        rows_per_call: most rows of one call; longer tables take several.
        calls_per_row, rows_per_row: most calls, and rows in them, that the search for one row may take.
        calls_per_s, rows_per_s: how fast calls and rows may follow each other; None: without limit.
        timeout_s: seconds that one call may take, and no longer than the request has left.
        retries: how often a call is repeated after 429, 5xx or a broken connection.
        backoff_s: seconds before the first of these, twice as many before each further one.
        reply_bytes: size of a reply beyond which it is not read.
        failures: so many calls in a row that fail stop all calls for `pause_s` seconds; then one is tried.
        probe_rows: how many rows of the background are asked about again to notice another model.
        probe_every_s: seconds between these questions, which travel with calls that are made anyway.
        on_change: what a different answer to them leads to: no explanations, or a warning.
    """

    POSITIONAL: ClassVar[tuple[str, ...]] = ("url",)
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[StrictStr, Field(max_length=2_048), AfterValidator(_address)]
    target: Annotated[StrictStr, AfterValidator(_target)] | None = None
    headers: Annotated[Mapping[StrictStr, StrictStr], AfterValidator(_without_secrets)] = Field(default_factory=dict)
    rows_per_call: Annotated[StrictInt, Field(ge=1, le=100_000)] = 500
    calls_per_row: Annotated[StrictInt, Field(ge=4, le=100_000)] = 40
    rows_per_row: Annotated[StrictInt, Field(ge=16, le=10_000_000)] = 4_000
    calls_per_s: Rate | None = None
    rows_per_s: Rate | None = None
    timeout_s: Seconds = 10.0
    retries: Annotated[StrictInt, Field(ge=0, le=10)] = 2
    backoff_s: Seconds = 0.1
    reply_bytes: Annotated[StrictInt, Field(ge=1_024, le=1_073_741_824)] = 16_777_216
    failures: Annotated[StrictInt, Field(ge=1, le=1_000)] = 5
    pause_s: Seconds = 10.0
    probe_rows: Annotated[StrictInt, Field(ge=0, le=1_000)] = 16
    probe_every_s: Annotated[Number, Field(ge=0)] = 60.0
    on_change: Change = "refuse"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse what this kind of address has no use for."""
        if self.deployed is None and self.target is not None:
            raise PydanticCustomError("target", "target: is for endpoints:/name alone")
        if self.deployed is not None and self.headers:
            raise PydanticCustomError("headers", "headers: are those of the deployments client; leave them out")
        return self

    @property
    def deployed(self) -> tuple[str, str] | None:
        """What a deployments client knows the model by, ``endpoints`` or ``deployments``, and its name; else None."""
        found = _DEPLOYED.fullmatch(self.url)
        return None if found is None else (found[1], found[2])

    @property
    def variables(self) -> Iterator[str]:
        """The environment variables that the headers name."""
        return (name for value in self.headers.values() for name in VARIABLE.findall(value))


def as_model(model: object) -> object:
    """Return a model as it was given, or the endpoint that a web address stands for.

    Raises:
        InputError: an address that cannot be used.
    """
    return Endpoint(url=model) if isinstance(model, str) and ADDRESS.match(model) else model
