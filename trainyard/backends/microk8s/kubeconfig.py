"""The kubeconfig of Trainyard's MicroK8s, with a server that answers."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainyard.backends.contract import Site
from trainyard.backends.microk8s.facts import DATA
from trainyard.backends.microk8s.lab import Lab
from trainyard.backends.shared import record
from trainyard.errors import OutsideError
from trainyard.seams.addresses import answers
from trainyard.steps import YES, Answer, Step, no

# The id of the step after which Kubernetes can be asked.
STEP = "kubeconfig"


def step(lab: Lab, path: Path, *, after: str) -> Step:
    """Return the step that writes the kubeconfig to `path`."""

    def done() -> Answer:
        if not path.exists():
            return no("it does not exist")
        ca = lab.first.root("cat", f"{DATA}/certs/ca.crt").stdout
        if _ca(yaml.safe_load(path.read_text())).strip() == ca.strip():
            return YES
        return no("it belongs to another cluster")

    def do() -> None:
        # MicroK8s' kubeconfig names the host's address on its default route. This machine may not
        # reach that address, so the cluster file's address replaces it.
        write(path, lab.first.microk8s("config").stdout, lab.first.server)

    return Step(STEP, "Write the kubeconfig", done, do, after=after)


def write(path: Path, text: str, server: str) -> None:
    """Write a kubeconfig with another `server` (`https://HOST:PORT`)."""
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise OutsideError(
            "this is no kubeconfig: it is no mapping", where=text.strip().partition("\n")[0]
        )
    _cluster(document)["server"] = server
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record.write_private(path, yaml.safe_dump(document, sort_keys=False))


def choose_server(site: Site, path: Path, servers: Sequence[str]) -> None:
    """If a kubeconfig's server is silent, choose another one of `servers`.

    Takes the first server that answers with the kubeconfig's CA, and replaces
    it in the cluster's record, too. If none does, changes nothing: the next
    request to Kubernetes raises the reason.
    """
    text = path.read_text()
    document = yaml.safe_load(text)
    now = _cluster(document)["server"]
    server = _answering(dict.fromkeys((now, *servers)), ca=_ca(document))
    if server in (None, now):
        return

    write(path, text, server)
    written = record.read_cluster(site.state, site.backend)
    if written:
        record.write_cluster(site.state, site.backend, {**written, "server": server})


def _answering(servers: Iterable[str], *, ca: str) -> str | None:
    for server in servers:
        parts = urlsplit(server)
        if answers(str(parts.hostname), parts.port or 443, ca=ca):
            return server
    return None


def _cluster(document: dict[str, Any]) -> dict[str, Any]:
    cluster: dict[str, Any] = document["clusters"][0]["cluster"]
    return cluster


def _ca(document: dict[str, Any]) -> str:
    return base64.b64decode(_cluster(document)["certificate-authority-data"]).decode()
