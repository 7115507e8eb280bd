"""Pushes and pulls by a Docker engine, with its network, CAs and proxies."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import requests
from docker.errors import DockerException

from trainyard.seams.docker.engine import Engine, explanation
from trainyard.seams.docker.images import registry_of, split_tag
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import MissingError, RegistryError, refused

CONNECT_SECONDS = 10.0
# The longest silence in a push. Docker reports progress while it sends a layer, so a longer silence
# means that the registry is stuck.
SILENCE_SECONDS = 300.0
MB = 1_000_000
# Docker's states of a layer that needs nothing more (docker/distribution, pull and push).
_ENDED = frozenset({"Pull complete", "Already exists", "Pushed", "Layer already exists"})
_MOVING = frozenset({"Downloading", "Pushing"})
_ANNOUNCED = frozenset({"Preparing", "Waiting", "Pulling fs layer"})


def push(
    engine: Engine,
    reference: str,
    *,
    login: Login | None,
    on_progress: Callable[[str], None] = lambda text: None,
    on_retry: Callable[[], None] = lambda: None,
    on_sent: Callable[[str], None] = lambda layer: None,
) -> None:
    """Push REGISTRY/NAME:TAG, which the engine must have. Raises RegistryError.

    `on_retry` is called when Docker retries a layer, which it does for up to a
    minute without saying why. If `on_retry` raises, the push ends. `on_sent`
    gets the short id of each layer that was sent.
    """

    tally = LayerTally(on_progress)

    def watch(entry: Mapping[str, Any]) -> None:
        tally.count(entry)
        status = str(entry.get("status", ""))
        if status == "Pushed":
            on_sent(str(entry.get("id", "")))
        elif status.startswith("Retrying in"):
            on_retry()

    repository, tag = split_tag(reference)
    path = f"{quote(repository, safe='/:')}/push"
    doing = f"push {reference}"
    parameters = {"tag": tag}
    _transfer(engine, reference, login, doing, path, parameters, watch, silence=SILENCE_SECONDS)


def pull(
    engine: Engine,
    reference: str,
    *,
    login: Login | None,
    platform: str | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Fetch an image from its registry. Raises RegistryError."""
    repository, tag = split_tag(reference)
    parameters = {"fromImage": repository, "tag": tag, "platform": platform}
    # No limit for silence: with containerd's image store, engines unpack without a report.
    watch = LayerTally(on_progress).count
    _transfer(
        engine, reference, login, f"pull {reference}", "create", parameters, watch, silence=None
    )


def registry_digest(engine: Engine, reference: str, *, login: Login | None) -> str | None:
    """Ask a registry, through the engine, for a name's digest; None if unknown.

    Engine API, GET /distribution/{name}/json. Raises RegistryError.
    """
    try:
        answer = engine.api.inspect_distribution(  # type: ignore[no-untyped-call]
            reference, auth_config=_credentials(reference, login)
        )
    except (DockerException, requests.RequestException) as error:
        refusal = _refused(explanation(error), f"look for {reference}", reference, login)
        if isinstance(refusal, MissingError):
            return None
        raise refusal from error
    return str(answer["Descriptor"]["digest"])


class _Bytes(NamedTuple):
    moved: int
    total: int


class LayerTally:
    """Sums up a pull's or push's layers, each of which Docker reports alone."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self._on_progress = on_progress
        self._is_push = False
        self._ended: dict[str, bool] = {}
        self._bytes: dict[str, _Bytes] = {}

    def count(self, entry: Mapping[str, Any]) -> None:
        """Count an entry of Docker's stream, and report a layer's progress."""
        layer = entry.get("id")
        status = entry.get("status", "")
        if not layer or status.startswith(("Pulling from", "Digest", "Status")):
            return

        self._ended[layer] = status in _ENDED or status.startswith("Mounted from")
        self._is_push = self._is_push or status == "Pushing"
        detail = entry.get("progressDetail") or {}
        if status in _MOVING and detail.get("total"):
            self._bytes[layer] = _Bytes(detail.get("current", 0), detail["total"])
        elif layer in self._bytes:
            size = self._bytes[layer].total
            self._bytes[layer] = _Bytes(size, size)

        if status not in _ANNOUNCED:
            self._report()

    def _report(self) -> None:
        moved = sum(layer.moved for layer in self._bytes.values()) / MB
        total = sum(layer.total for layer in self._bytes.values()) / MB
        layers = f"{sum(self._ended.values())} of {len(self._ended)} layers"
        if total < 1:
            self._on_progress(layers)
        elif self._is_push:
            # Docker counts bytes before compression, and learns a layer's size only when it sends
            # the layer, so a total would keep growing.
            self._on_progress(f"{layers}, {moved:.0f} MB before compression")
        else:
            self._on_progress(f"{layers}, {moved:.0f} of {total:.0f} MB")


def _transfer(
    engine: Engine,
    reference: str,
    login: Login | None,
    doing: str,
    path: str,
    parameters: Mapping[str, str | None],
    on_entry: Callable[[Mapping[str, Any]], None],
    *,
    silence: float | None,
) -> None:
    """Push or pull; call `on_entry` with each report, and end if it raises."""
    credentials = json.dumps(_credentials(reference, login)).encode()
    try:
        # docker-py's own push and pull hide the connection, so they cannot be ended.
        with engine.api.post(
            f"{engine.api.base_url}/v{engine.api.api_version}/images/{path}",
            params=parameters,
            headers={"X-Registry-Auth": base64.urlsafe_b64encode(credentials).decode()},
            stream=True,
            timeout=(CONNECT_SECONDS, silence),
        ) as answer:
            if answer.status_code != requests.codes.ok:
                raise _refused(answer.text, doing, reference, login)
            for line in filter(bytes.strip, answer.iter_lines(chunk_size=None)):
                entry = json.loads(line)
                if entry.get("error"):
                    raise _refused(str(entry["error"]), doing, reference, login)
                on_entry(entry)
    except (requests.RequestException, ValueError) as error:
        raise _refused(
            f"the connection to Docker broke: {error}", doing, reference, login
        ) from error


def _credentials(reference: str, login: Login | None) -> dict[str, str]:
    if login:
        return login.for_engine(registry_of(reference))
    return {}


def _refused(raw: str, doing: str, reference: str, login: Login | None) -> RegistryError:
    who = ""
    if login:
        who = login.who
    return refused(raw, registry_of(reference), doing=doing, who=who)
