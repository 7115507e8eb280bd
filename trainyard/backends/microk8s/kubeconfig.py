"""The kubeconfig of a Kubernetes that we made: one cluster, by whichever of its servers answers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainyard.backends.contract import Tools
from trainyard.backends.shared import record
from trainyard.errors import OutsideError
from trainyard.seams.addresses import answers
from trainyard.steps import YES, Answer, Step, no

# The id of the step after which there is a Kubernetes to ask.
STEP = "kubeconfig"


def step(
    path: Path, ca: Callable[[], str], text: Callable[[], str], server: str, *, after: str
) -> Step:
    """Return the step after which the kubeconfig is here; `ca` and `text` ask Kubernetes for its
    CA, and for one.
    """

    def done() -> Answer:
        if not path.exists():
            return no("it is not there")
        if _ca(yaml.safe_load(path.read_text())).strip() == ca().strip():
            return YES
        return no("it is of another cluster")

    return Step(
        STEP, "Write its kubeconfig", done, lambda: write(path, text(), server), after=after
    )


def write(path: Path, text: str, server: str) -> None:
    """Write a kubeconfig for this server, whatever the text calls it: `https://HOST:PORT`."""
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise OutsideError("Kubernetes gives no kubeconfig", where=text.strip().partition("\n")[0])
    _cluster(document)["server"] = server
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record.write_private(path, yaml.safe_dump(document, sort_keys=False))


def choose_server(tools: Tools, path: Path, servers: Sequence[str]) -> None:
    """Let it name another of the Kubernetes' servers, where the one that it names does not answer.

    What is written down about the cluster follows. Where none of their CA answers, whoever asks
    Kubernetes says why.
    """
    text = path.read_text()
    document = yaml.safe_load(text)
    now = _cluster(document)["server"]
    ca = _ca(document)
    parts = {server: urlsplit(server) for server in (now, *servers)}
    answering = (
        server for server, at in parts.items() if answers(str(at.hostname), at.port or 443, ca=ca)
    )
    server = next(answering, now)
    if server == now:
        return

    write(path, text, server)
    written = record.read_cluster(tools.state, tools.backend)
    if written:
        record.write_cluster(tools.state, tools.backend, {**written, "server": server})


def _cluster(document: dict[str, Any]) -> dict[str, Any]:
    cluster: dict[str, Any] = document["clusters"][0]["cluster"]
    return cluster


def _ca(document: dict[str, Any]) -> str:
    return base64.b64decode(_cluster(document)["certificate-authority-data"]).decode()
