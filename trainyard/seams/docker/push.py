"""Let a Docker engine push an image, or ask it what a registry has: with the engine's own network, CAs and proxies."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import requests
from docker.errors import DockerException

from trainyard.seams.docker.engine import Engine, explanation
from trainyard.seams.docker.images import LayerTally, registry_of, split_tag
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import MissingError, RegistryError, refused

CONNECT_SECONDS = 10.0
# Docker reports while it sends; a registry that takes a whole layer in and then is silent for longer is stuck.
SILENCE_SECONDS = 300.0


def push(
    engine: Engine,
    reference: str,
    *,
    login: Login | None,
    on_progress: Callable[[str], None] = lambda text: None,
    on_retry: Callable[[], None] = lambda: None,
    on_sent: Callable[[str], None] = lambda layer: None,
) -> None:
    """Push REGISTRY/NAME:TAG, which the engine must have.

    `on_retry` is called when Docker itself will try a layer again: for up to a minute and without a reason. It may
    raise, which ends the push. `on_sent` gets the short id of each layer that was sent. Raises RegistryError.
    """
    tally = LayerTally()
    with closing(_entries(engine, reference, login)) as entries:
        for entry in entries:
            if entry.get("error"):
                raise _refused(str(entry["error"]), f"push {reference}", reference, login)
            status = str(entry.get("status", ""))
            if status == "Pushed":
                on_sent(str(entry.get("id", "")))
            elif status.startswith("Retrying in"):
                on_retry()
            if tally.count(entry):
                on_progress(tally.text())


def registry_digest(engine: Engine, reference: str, *, login: Login | None) -> str | None:
    """Return the digest of what a registry has under this name now, as this engine sees it; None if it has nothing.

    (Engine API, GET /distribution/{name}/json.) Raises RegistryError.
    """
    try:
        answer = engine.api.inspect_distribution(  # type: ignore[no-untyped-call]
            reference, auth_config=login.for_engine(registry_of(reference)) if login else {}
        )
    except (DockerException, requests.RequestException) as error:
        refusal = _refused(explanation(error), f"look for {reference}", reference, login)
        if isinstance(refusal, MissingError):
            return None
        raise refusal from error
    return str(answer["Descriptor"]["digest"])


def _entries(engine: Engine, reference: str, login: Login | None) -> Generator[Mapping[str, Any], None, None]:
    """Yield what the engine reports, as it comes. Closing it closes the connection, which ends the push."""
    doing = f"push {reference}"
    repository, tag = split_tag(reference)
    auth = login.for_engine(registry_of(reference)) if login else {}
    try:
        # docker-py's own push cannot be ended: it keeps the connection to itself.
        with engine.api.post(
            f"{engine.api.base_url}/v{engine.api.api_version}/images/{quote(repository, safe='/:')}/push",
            params={"tag": tag or "latest"},
            headers={"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(auth).encode()).decode()},
            stream=True,
            timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
        ) as answer:
            if answer.status_code != requests.codes.ok:
                raise _refused(answer.text, doing, reference, login)
            for line in answer.iter_lines(chunk_size=None):
                if line.strip():
                    yield json.loads(line)
    except (requests.RequestException, ValueError) as error:
        raise _refused(f"the connection to Docker broke: {error}", doing, reference, login) from error


def _refused(raw: str, doing: str, reference: str, login: Login | None) -> RegistryError:
    return refused(raw, registry_of(reference), doing=doing, who=login.who if login else "")
