"""Let a Docker engine push an image, or ask it what a registry has: it goes the engine's way, with its trust."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import requests
from docker.errors import APIError, DockerException
from urllib3.exceptions import ReadTimeoutError

from trainyard.seams.docker_engine import Engine, explanation
from trainyard.seams.docker_images import registry_of, split_tag
from trainyard.seams.layer_progress import LayerTally
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_refusals import GoneError, MissingError, RegistryError, refused

CONNECT_SECONDS = 10.0
# Docker reports while it sends; a registry that takes a whole layer in and then says nothing for longer is stuck.
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

    `on_retry` is called when Docker itself will try a layer again: for up to a minute and without saying why. It may
    raise, which ends the push. `on_sent` hears the short id of each layer that was sent. Raises RegistryError.
    """
    tally = LayerTally()
    with closing(_entries(engine, reference, login)) as entries:
        for entry in entries:
            if entry.get("error"):
                raise refused(str(entry["error"]), registry_of(reference), doing=f"push {reference}", who=_who(login))
            status = str(entry.get("status", ""))
            if status == "Pushed":
                on_sent(str(entry.get("id", "")))
            elif status.startswith("Retrying in"):
                on_retry()
            if tally.saw(entry):
                on_progress(tally.text())


def digest_there(engine: Engine, reference: str, *, login: Login | None) -> str | None:
    """Return the digest of what a registry has under this name now, as this engine sees it; None if it has nothing.

    (Engine API, GET /distribution/{name}/json.) Raises RegistryError.
    """
    registry = registry_of(reference)
    try:
        found = engine.api.inspect_distribution(  # type: ignore[no-untyped-call]
            reference, auth_config=login.for_engine(registry) if login else {}
        )
    except APIError as error:
        refusal = refused(explanation(error), registry, doing=f"look for {reference}", who=_who(login))
        if isinstance(refusal, MissingError):
            return None
        raise refusal from error
    except (DockerException, requests.RequestException) as error:
        raise refused(str(error), registry, doing=f"look for {reference}") from error
    return str(found["Descriptor"]["digest"])


def _entries(engine: Engine, reference: str, login: Login | None) -> Generator[Mapping[str, Any], None, None]:
    """Yield what the engine reports, as it comes. Closing it closes the connection, which ends the push."""
    registry = registry_of(reference)
    repository, tag = split_tag(reference)
    header = base64.urlsafe_b64encode(json.dumps(login.for_engine(registry) if login else {}).encode()).decode()
    try:
        # docker-py's own push cannot be ended: it keeps the connection to itself.
        with engine.api.post(
            f"{engine.api.base_url}/v{engine.api.api_version}/images/{quote(repository, safe='/:')}/push",
            params={"tag": tag or "latest"},
            headers={"X-Registry-Auth": header},
            stream=True,
            timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
        ) as answer:
            if answer.status_code != requests.codes.ok:
                raise _refused(answer, reference)
            for line in answer.iter_lines(chunk_size=None):
                if line.strip():
                    yield json.loads(line)
    except (requests.RequestException, ValueError) as error:
        if _is_silence(error):
            raise GoneError(
                f"registry {registry} takes nothing more",
                where=f"push {reference}: nothing happened for {SILENCE_SECONDS:.0f} s",
                hint="Repeat the command: layers that are there are not sent again.",
            ) from error
        raise refused(f"the connection to Docker broke: {error}", registry, doing=f"push {reference}") from error


def _is_silence(error: Exception) -> bool:
    """Say whether nothing came for too long; in the middle of an answer, requests calls that a ConnectionError."""
    return isinstance(error, requests.exceptions.ReadTimeout) or any(
        isinstance(one, ReadTimeoutError) for one in error.args
    )


def _who(login: Login | None) -> str:
    return login.who if login else ""


def _refused(answer: requests.Response, reference: str) -> RegistryError:
    try:
        said = str(answer.json().get("message", ""))
    except ValueError:
        said = answer.text
    return refused(said, registry_of(reference), doing=f"push {reference}")
