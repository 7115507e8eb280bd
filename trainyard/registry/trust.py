"""The steps that make Docker here trust a registry, with a pull as proof."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.errors import PrerequisiteError
from trainyard.registry import access
from trainyard.registry.target import Target
from trainyard.seams.docker import daemon as docker_daemon
from trainyard.seams.docker import images, transfer
from trainyard.seams.docker.daemon import Daemon
from trainyard.seams.registry.errors import CertificateError
from trainyard.steps import YES, Answer, Step, no

# The key of daemon.json for registries without TLS.
KEY = "insecure-registries"
# Docker reads every *.crt in the registry's directory. This name does not overwrite a user's own
# ca.crt.
CA_NAME = "trainyard-ca.crt"
# An image of a few bytes, for the pull that proves the connection.
PROBE = "trainyard/probe:1"
RELOAD_SECONDS = 15.0
# The id of the step that writes daemon.json.
_SETTING = "setting"
AS_ROOT = 'Repeat as root: sudo -E env "PATH=$PATH" "HOME=$HOME" trainyard registry.trust'


def trust_steps(target: Target) -> list[Step]:
    """Return the steps, which depend on what registry and Docker answer now.

    Raises PrerequisiteError if Docker's settings cannot be changed from here.
    """
    if target.registry.insecure:
        steps = _plain_steps(target)
    else:
        steps = _tls_steps(target)

    pulled: list[str] = []

    def is_proven() -> Answer:
        if pulled:
            return YES
        return no("not tried yet")

    def prove() -> None:
        pulled.append(_pull(target))

    after = steps[-1].id if steps else None
    return [*steps, Step("proof", "A pull proves it", is_proven, prove, after=after)]


def is_accepted(target: Target) -> bool:
    """Say whether Docker accepts the registry, by trusted TLS or plain HTTP."""
    try:
        transfer.registry_digest(target.engine, _probe(target), login=target.login)
    except CertificateError:
        return False
    return True


def kept_here(target: Target) -> tuple[str, ...]:
    """Say how to remove settings by which Docker still trusts the registry."""
    texts = []
    directory = docker_daemon.CERTIFICATES / target.address
    if (directory / CA_NAME).exists():
        texts.append(f"Docker here still trusts its CA; to remove that: sudo rm -r {directory}")

    daemon = docker_daemon.find(target.engine)
    with suppress(PrerequisiteError):
        if daemon and target.address in _read(daemon.settings).get(KEY, ()):
            path = daemon.settings
            remove = (
                f"remove it there, then: sudo systemctl reload docker (copies: {path}.DATE-TIME)"
            )
            texts.append(
                f"Docker here still has the registry's address in {KEY} of {path}; {remove}"
            )
    return tuple(texts)


def _plain_steps(target: Target) -> list[Step]:
    if is_accepted(target):
        return []

    daemon = _daemon(target)
    refuse_flag(daemon, target.address)
    path = daemon.settings

    def is_written() -> Answer:
        if target.address in _read(path).get(KEY, ()):
            return YES
        return no("it is not there")

    def accepts() -> Answer:
        if is_accepted(target):
            return YES
        return no("not yet; a restart helps: sudo systemctl restart docker")

    return [
        Step(
            _SETTING,
            f"Add {target.address} to {path}",
            is_written,
            lambda: add(path, target.address, now=target.now()),
        ),
        Step(
            "reload",
            "Docker reads its settings again, without a restart",
            accepts,
            lambda: docker_daemon.reload(daemon),
            deadline=RELOAD_SECONDS,
            after=_SETTING,
        ),
    ]


def _tls_steps(target: Target) -> list[Step]:
    ca = access.ca_file(target.registry, target.environ)
    if ca is None or (docker_daemon.find(target.engine) is None and is_accepted(target)):
        # A public CA's certificate needs no file. A remote engine's files cannot be written from
        # here, so it is enough if that engine already accepts the registry.
        return []

    # Raises PrerequisiteError if Docker's files are not on this machine.
    _daemon(target)
    path = docker_daemon.CERTIFICATES / target.address / CA_NAME

    def has_ca() -> Answer:
        with _explained("the registry's CA cannot be read, here or where Docker has it"):
            if path.exists() and path.read_bytes() == ca.read_bytes():
                return YES
            return no("it is not there")

    def put() -> None:
        with _explained(f"{path} cannot be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ca, path)

    return [Step("ca", f"Put its CA at {path}", has_ca, put)]


def _daemon(target: Target) -> Daemon:
    """Return the dockerd on this machine whose settings are to change.

    Raises PrerequisiteError with instructions if the engine is not such a
    dockerd.
    """
    daemon = docker_daemon.find(target.engine)
    if daemon:
        return daemon

    ca = access.ca_file(target.registry, target.environ)
    by_hand = (
        f"put {ca} there as /etc/docker/certs.d/{target.address}/ca.crt (Docker Desktop: "
        "below ~/.docker)"
    )
    if target.registry.insecure:
        by_hand = (
            f'add "{target.address}" to "insecure-registries" of its daemon.json, and restart it'
        )

    raise PrerequisiteError(
        "the settings of this Docker engine cannot be changed from here: it is not a dockerd that "
        "runs as root on this machine",
        where=target.engine.address,
        hint=f"Run registry.trust where Docker runs, or {by_hand}; then repeat this command: its "
        "pull proves it.",
    )


def _probe(target: Target) -> str:
    return f"{target.address}/{target.registry.repository(PROBE)}"


def _pull(target: Target) -> str:
    """Pull a tiny image from the registry and remove it here; return its name.

    An image that the registry lacks is pushed first, and stays in the registry.
    """
    reference = _probe(target)
    login = target.login
    try:
        if transfer.registry_digest(target.engine, reference, login=login) is None:
            images.make_tiny(target.engine, reference)
            transfer.push(target.engine, reference, login=login)
            images.remove(target.engine, reference)
        transfer.pull(target.engine, reference, login=login)
        return reference
    finally:
        images.remove(target.engine, reference)


def add(path: Path, address: str, *, now: datetime) -> None:
    """Add the registry to daemon.json; other keys, order and mode stay.

    The old file is kept, with date and time in its name. A symbolic link stays,
    and its target is changed.
    """
    settings = _read(path)
    settings[KEY] = [*settings.get(KEY, ()), address]
    target = path.resolve()
    new = target.with_name(f"{target.name}.trainyard-new")
    with _explained(f"{path} cannot be written"):
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if target.exists():
            shutil.copy2(target, path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S}"))
            shutil.copymode(target, new)
        new.replace(target)


def refuse_flag(daemon: Daemon, address: str) -> None:
    """Raise PrerequisiteError if dockerd has --insecure-registry as a flag.

    With the same setting in daemon.json, dockerd would not start.
    """
    if any(word.startswith("--insecure-registry") for word in daemon.arguments):
        raise PrerequisiteError(
            "dockerd is started with --insecure-registry, and does not start if its file has "
            "such settings as well",
            where=f"dockerd (pid {daemon.pid})",
            hint=f"Add the flag --insecure-registry={address} there (systemctl edit docker), and "
            "restart Docker.",
        )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrerequisiteError(f"{what}: {error}", hint=AS_ROOT) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        with _explained(f"{path} cannot be read"):
            text = ""
            if path.exists():
                text = path.read_text(encoding="utf-8")
        # dockerd accepts an empty file.
        settings = dict(json.loads(text.strip() or "{}"))
        if not isinstance(settings.get(KEY, []), list):
            raise ValueError(f"{KEY} is not a list")
    except (ValueError, TypeError) as error:
        raise PrerequisiteError(
            f"Docker's settings file is not JSON that Docker accepts: {error}",
            where=str(path),
            hint="Docker would not start with it. Repair it, then repeat this command; nothing "
            "was changed.",
        ) from error
    return settings
