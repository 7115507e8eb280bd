"""The steps that make this host's Docker pull from a registry, and prove that it does."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.registry import access
from trainyard.registry.target import Target
from trainyard.seams.docker import daemon as docker_daemon
from trainyard.seams.docker import images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.daemon import Daemon
from trainyard.seams.registry.errors import CertificateError
from trainyard.steps import YES, Answer, Progress, Step, StepResult, no, run

# Of daemon.json.
KEY = "insecure-registries"
# Docker takes every *.crt of the registry's directory; this name leaves a ca.crt of the user's alone.
CA_NAME = "trainyard-ca.crt"
# An image of a few bytes: it proves the way, not the image.
PROBE = "trainyard/probe:1"
RELOAD_SECONDS = 15.0
AS_ROOT = 'Repeat as root: sudo -E env "PATH=$PATH" "HOME=$HOME" invoke registry.trust'


def trust(target: Target, progress: Progress) -> list[StepResult]:
    with target.alone(progress):
        return run(trust_steps(target), progress)


def trust_steps(target: Target) -> list[Step]:
    """Return the steps. Raises RequestError or PrerequisiteError where it has to be done in another way."""
    steps = _plain_steps(target) if target.registry.insecure else _tls_steps(target)
    pulled: list[str] = []
    return [
        *steps,
        Step(
            "A pull proves it",
            lambda: YES if pulled else no("not tried yet"),
            lambda: pulled.append(_pull(target)),
            after=steps[-1].title if steps else None,
        ),
    ]


def is_let_in(target: Target) -> bool:
    """Ask whether Docker speaks to the registry as it is now: by TLS with a certificate that it trusts, or plainly."""
    try:
        docker_push.registry_digest(target.engine, _probe(target), login=target.login)
    except CertificateError:
        return False
    return True


def _plain_steps(target: Target) -> list[Step]:
    if is_let_in(target):
        return [Step(f"Docker accepts plain HTTP from {target.address}", lambda: YES, lambda: None)]
    daemon = _daemon(target)
    refuse_flag(daemon, target.address)
    path = daemon.settings
    # Read now, so that a file that Docker cannot read is refused before anything else happens.
    has(path, target.address)
    backup = backup_of(path, now=target.now())
    written = f"Add {target.address} to {path}" + (f", as it was: {backup.name}" if path.exists() else "")
    return [
        Step(
            written,
            lambda: YES if has(path, target.address) else no("it is not there"),
            lambda: add(path, target.address, backup=backup, hint=AS_ROOT),
        ),
        Step(
            "Docker reads its settings again, without a restart",
            lambda: YES if is_let_in(target) else no("not yet; it does after: sudo systemctl restart docker"),
            lambda: docker_daemon.reload(daemon),
            deadline=RELOAD_SECONDS,
            after=written,
        ),
    ]


def _tls_steps(target: Target) -> list[Step]:
    ca = access.ca_file(target.registry, target.environ)
    if ca is None or (docker_daemon.find(target.engine) is None and is_let_in(target)):
        # A certificate of a public CA needs nothing, and the files of an engine elsewhere are not ours to write.
        return []
    try:
        content = ca.read_bytes()
    except OSError as error:
        raise PrerequisiteError(
            f"registry.ca_file cannot be read: {error.strerror}",
            where=str(ca),
            hint="It names a copy of the CA that registry.up made: registry.status says where that is.",
        ) from error
    path = _daemon(target).certificates / target.address / CA_NAME
    return [
        Step(
            f"Put its CA at {path}",
            lambda: _has_content(path, content),
            lambda: write_for_all(path, content, hint=AS_ROOT),
        )
    ]


def _has_content(path: Path, content: bytes) -> Answer:
    try:
        return YES if path.read_bytes() == content else no("another CA is there")
    except OSError as error:
        return no(f"it is not there: {error.strerror}")


def _daemon(target: Target) -> Daemon:
    """Return the daemon whose settings count. Raises an error that says what to do where they are not ours."""
    engine = target.engine
    if not engine.is_here:
        raise RequestError(
            f"the Docker that is used here runs on {engine.host}: registry.trust changes the host it runs on",
            where=engine.address,
            hint=f"Run it there: ssh {engine.host}, then invoke registry.trust",
        )
    found = docker_daemon.find(engine)
    if found:
        return found
    by_hand = f"{access.ca_file(target.registry, target.environ)} as /etc/docker/certs.d/{target.address}/ca.crt "
    by_hand += "(Docker Desktop: below ~/.docker)"
    if target.registry.insecure:
        by_hand = f'"{target.address}" in "insecure-registries" of its daemon.json (Settings -> Docker Engine)'
    raise PrerequisiteError(
        "no dockerd of this machine answers on this socket: it is Docker Desktop's, or runs in a virtual machine or a "
        "container",
        where=engine.address,
        hint=f"Name the registry there: {by_hand}; restart it, then repeat this command: its pull proves it.",
    )


def _probe(target: Target) -> str:
    return f"{target.address}/{target.registry.repository(PROBE)}"


def _pull(target: Target) -> str:
    """Send an image of a few bytes there if it lacks it, fetch it, and remove it again; return its id."""
    reference, login = _probe(target), target.login
    try:
        if docker_push.registry_digest(target.engine, reference, login=login) is None:
            images.make_tiny(target.engine, reference)
            docker_push.push(target.engine, reference, login=login)
            images.remove(target.engine, reference)
        images.pull(target.engine, reference, auth=login.for_engine(target.address) if login else None)
        found = images.inspect(target.engine, reference)
        if found is None:
            raise OutsideError(f"Docker says that it pulled {reference}, and does not have it")
        return found.id
    except CertificateError as error:
        if target.registry.insecure or access.ca_file(target.registry, target.environ):
            raise
        raise PrerequisiteError(
            f"the certificate of registry {target.address} is of a CA that Docker does not know, and nor do we",
            where=error.where,
            hint="Name a copy of its CA as registry.ca_file; registry.up left it on the machine that it ran on.",
        ) from error
    finally:
        images.remove(target.engine, reference)


def has(path: Path, address: str) -> bool:
    """Say whether the settings name the registry. Raises PrerequisiteError for settings that Docker cannot read."""
    return address in _read(path).get(KEY, ())


def add(path: Path, address: str, *, backup: Path, hint: str) -> None:
    """Put the registry into the settings: keys, their order and the indentation stay, and a copy of them is left.

    A link is followed, so that it stays one; mode and owner stay too. Raises PrerequisiteError, with `hint` when it is
    not allowed.
    """
    settings = _read(path)
    settings[KEY] = [*settings.get(KEY, ()), address]
    target = path.resolve()
    new = target.with_name(f"{target.name}.trainyard-new")
    with _explained(path, hint):
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(settings, indent=_indentation(target), ensure_ascii=False) + "\n", encoding="utf-8")
        if target.exists():
            shutil.copyfile(target, backup)
            for copy in (new, backup):
                os.chown(copy, target.stat().st_uid, target.stat().st_gid)
                shutil.copystat(target, copy)
        new.replace(target)


def backup_of(path: Path, *, now: datetime) -> Path:
    return path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S}")


def refuse_flag(daemon: Daemon, address: str) -> None:
    """Refuse what would keep Docker from starting: one setting both as a flag and in the file."""
    if any(word.startswith("--insecure-registry") for word in daemon.arguments):
        raise PrerequisiteError(
            "dockerd is started with --insecure-registry, and does not start if its file has such settings as well",
            where=f"dockerd (pid {daemon.pid})",
            hint=f"Add the flag --insecure-registry={address} there (systemctl edit docker), and restart Docker.",
        )


def write_for_all(path: Path, content: bytes, *, hint: str) -> None:
    """Write a file that everybody may read, whatever root's umask is, with the directories above it."""
    with _explained(path, hint):
        missing = [directory for directory in path.parents if not directory.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for directory in missing:
            directory.chmod(0o755)
        path.write_bytes(content)
        path.chmod(0o644)


@contextmanager
def _explained(path: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrerequisiteError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def _read(path: Path) -> dict[str, Any]:
    # dockerd takes no file, and an empty one, for no settings.
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        settings = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise _unreadable(f"is not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(f"{path} cannot be read: {error}", hint="Look at it as root: sudo less") from error
    if not isinstance(settings, dict):
        raise _unreadable("is not a JSON object", str(path))
    if not isinstance(settings.get(KEY, []), list):
        raise _unreadable(f"has {KEY} that are not a list", str(path))
    return settings


def _unreadable(what: str, where: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"Docker's settings file {what}",
        where=where,
        hint="Docker would not start with it. Repair it, then repeat this command; nothing was changed.",
    )


def _indentation(path: Path) -> str | int:
    """Return how the file is indented; two spaces where that cannot be seen."""
    found = re.search(r"^\{\s*\n([ \t]+)\S", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else 2
