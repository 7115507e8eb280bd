"""The CA of a registry of ours: made once, kept on this machine and, without its key, inside the container."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import certificates, inside
from trainyard.registry.certificates import KeyPair
from trainyard.registry.site import Site
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container
from trainyard.steps import YES, Answer, no


def is_there(site: Site) -> Answer:
    """Say whether this machine has the CA, with months to live."""
    _refuse_foreign(site)
    try:
        known = (site.state / "ca.pem").read_bytes()
    except FileNotFoundError:
        return no("there is none")
    problem = certificates.ca_problem(known, now=site.now())
    return no(problem) if problem else YES


def make(site: Site) -> None:
    """Make the CA; where the registry already has one, made on another machine, take its certificate from there."""
    site.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    container = site.container
    known = containers.read_file(site.engine, container.id, inside.CA) if container else None
    if known and certificates.ca_problem(known, now=site.now()) is None and not (site.state / "ca.pem").exists():
        _write(site, "ca.pem", known)
        return
    made = certificates.make_ca(site.place.host, now=site.now())
    _write(site, "ca.key", made.key)
    _write(site, "ca.pem", made.certificate)


def pair(site: Site) -> KeyPair:
    """Return the CA with its key. Raises PrerequisiteError where this machine has no such key."""
    try:
        found = KeyPair((site.state / "ca.pem").read_bytes(), (site.state / "ca.key").read_bytes())
    except FileNotFoundError as error:
        raise _no_key(site, "is not on this machine") from error
    if not found.belong_together:
        # Two files cannot be replaced at once; or one of them was copied here.
        raise _no_key(site, "is another one than its certificate's")
    return found


def _no_key(site: Site, what: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the key of the CA of {site.address} {what}",
        where=str(site.state / "ca.key"),
        hint="Run registry.up on the machine that made the registry; or make all anew, which every host must "
        "trust again: invoke registry.down --purge",
    )


def server(site: Site, ca: KeyPair) -> KeyPair:
    """Make the certificate that the registry answers with."""
    return certificates.make_server(ca, site.place.host, now=site.now())


def problem_inside(site: Site, container: Container) -> str | None:
    """Say why the certificate of a running registry has to be replaced, or None if it is good."""
    found = containers.read_file(site.engine, container.id, inside.CERTIFICATE)
    if found is None:
        return "it has no certificate"
    known = (site.state / "ca.pem").read_bytes()
    return certificates.server_problem(found, known, site.place.host, now=site.now())


def _refuse_foreign(site: Site) -> None:
    """Refuse a CA that the file names and that is not ours: we cannot sign with it."""
    named = site.registry.ca_file
    ours = site.state / "ca.pem"
    if named is None or (ours.exists() and ours.read_bytes() == _content(named)):
        return
    raise RequestError(
        f"registry.ca_file names a CA that registry.up did not make: {named}",
        where=str(site.source) if site.source else None,
        hint="Leave it out: registry.up makes a CA and says where it is. Other machines then name a copy of that.",
    )


def _content(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError:
        return b""


def _write(site: Site, name: str, content: bytes) -> None:
    """Write a file whole or not at all, for its owner only."""
    path = site.state / name
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
