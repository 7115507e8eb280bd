"""The steps that make this host's Docker pull from a registry, and prove that it does."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import daemon_config, probe, settings, settings_file
from trainyard.registry.site import Site, alone
from trainyard.seams import addresses
from trainyard.seams.docker import daemon as docker_daemon
from trainyard.seams.docker.daemon import Daemon
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run

# Docker takes every *.crt of the registry's directory; this name leaves a ca.crt of the user's alone.
CA_NAME = "trainyard-ca.crt"
RELOAD_SECONDS = 15.0
DESKTOP = "Docker Desktop"


def trust(site: Site, progress: Progress) -> list[StepResult]:
    """Make Docker trust the registry; safe to repeat."""
    with alone(site, progress):
        return run(trust_steps(site), progress)


def plan_trust(site: Site) -> list[PlannedStep]:
    """Say what `trust` would change; change nothing."""
    return plan(trust_steps(site))


def trust_steps(site: Site) -> list[Step]:
    """Return the steps. Raises RequestError or PrerequisiteError where it has to be done in another way."""
    trusted = _plain_steps(site) if site.registry.insecure else _tls_steps(site)
    return [*trusted, *probe.steps(site, after=trusted[-1].title if trusted else None)]


def accepts_plain_http(info: Mapping[str, Any], address: str, *, found: tuple[str, ...]) -> bool:
    """Say whether an engine speaks plain HTTP to a registry, whose host has the IP addresses `found`.

    By Docker's own rule: the registry's entry counts, and without one, whether a network that it trusts has the host.
    """
    trusted = info.get("RegistryConfig") or {}
    entry = (trusted.get("IndexConfigs") or {}).get(address)
    if entry is not None:
        return not entry.get("Secure", True)
    networks = [ipaddress.ip_network(one) for one in trusted.get("InsecureRegistryCIDRs") or ()]
    return any(ipaddress.ip_address(one.partition("%")[0]) in network for one in found for network in networks)


def _plain_steps(site: Site) -> list[Step]:
    accepts = Step(f"Docker accepts plain HTTP from {site.address}", done=lambda: _accepts(site), do=_nothing)
    if _accepts(site).holds:
        return [accepts]
    daemon = _daemon(site)
    path = daemon.settings
    refuse_flag(daemon, site.address)
    backup = settings_file.backup_of(path, now=site.now())
    # Read now, so that a file that Docker cannot read is refused before anything else happens.
    kept = f", as it was: {backup.name}" if settings_file.read(path) else ""
    written = f"Add {site.address} to {path}{kept}"
    return [
        Step(written, done=lambda: _is_written(site, path), do=lambda: _write(site, daemon, backup)),
        Step(
            "Docker reads its settings again, without a restart",
            done=lambda: _accepts(site),
            do=lambda: docker_daemon.reload(daemon),
            deadline=RELOAD_SECONDS,
            after=written,
        ),
    ]


def _tls_steps(site: Site) -> list[Step]:
    ca = settings.ca_file(site.registry, site.environ)
    if ca is None:
        # A certificate of a public CA needs nothing; the pull will tell.
        return []
    content = _content(ca)
    found = docker_daemon.find(site.engine)
    if found is None and probe.docker_is_let_in(site):
        # Somebody has told an engine elsewhere, whose files are not ours to write.
        return []
    directory = (found or _daemon(site)).certificates / site.address
    title = f"Put its CA at {directory / CA_NAME}"
    return [
        Step(
            title,
            done=lambda: _has_content(directory / CA_NAME, content),
            do=lambda: settings_file.place(directory / CA_NAME, content, hint=_as_root(site)),
        )
    ]


def _nothing() -> None:
    """Change nothing: such a step only asks."""


def _accepts(site: Site) -> Answer:
    found = addresses.resolve(site.place.host)
    if accepts_plain_http(site.engine.info(), site.address, found=found):
        return YES
    return no("Docker does not say so yet; it will after: sudo systemctl restart docker")


def _is_written(site: Site, path: Path) -> Answer:
    there = daemon_config.has(settings_file.read(path), site.address, where=str(path))
    return YES if there else no("it is not there")


def _write(site: Site, daemon: Daemon, backup: Path) -> None:
    path = daemon.settings
    text = daemon_config.merged(settings_file.read(path), site.address, where=str(path))

    def check(new: Path) -> None:
        said = docker_daemon.complaint(daemon, new, site.environ)
        if said:
            raise PrerequisiteError(
                "Docker would not start with these settings; nothing was changed",
                where=f"{path}: {said}",
                hint=f"Repair {path}, or how dockerd is started, then repeat this command.",
            )

    settings_file.replace(path, text, backup=backup, check=check, hint=_as_root(site))


def _daemon(site: Site) -> Daemon:
    """Return the daemon whose settings count. Raises an error that says what to do where they are not ours."""
    if not site.engine.is_here:
        raise RequestError(
            f"the Docker that is used here runs on {site.engine.host}: registry.trust changes the host it runs on",
            where=site.engine.address,
            hint=f"Run it there: ssh {site.engine.host}, then invoke registry.trust",
        )
    if site.engine.info().get("OperatingSystem") == DESKTOP:
        raise PrerequisiteError("Docker Desktop keeps its settings to itself", hint=_desktop_hint(site))
    found = docker_daemon.find(site.engine)
    if found is None:
        raise PrerequisiteError(
            "no dockerd of this machine answers on this socket: it runs in a virtual machine or a container",
            where=site.engine.address,
            hint=f"Name the registry there, by {_by_hand(site)}; then repeat this command: its pull proves it.",
        )
    return found


def refuse_flag(daemon: Daemon, address: str) -> None:
    """Refuse what would keep Docker from starting: one setting both as a flag and in the file."""
    if any(docker_daemon.values(daemon.arguments, "--insecure-registry")):
        raise PrerequisiteError(
            "dockerd is started with --insecure-registry, and does not start if its file has such settings as well",
            where=f"dockerd (pid {daemon.pid})",
            hint=f"Add the flag --insecure-registry={address} there (systemctl edit docker), and restart Docker.",
        )


def _desktop_hint(site: Site) -> str:
    if site.registry.insecure:
        return f'Settings -> Docker Engine: add "{site.address}" to "insecure-registries", then "Apply & restart".'
    ca = settings.ca_file(site.registry, site.environ)
    return f"Copy {ca} to ~/.docker/certs.d/{site.address}/ca.crt, then restart Docker Desktop."


def _by_hand(site: Site) -> str:
    if site.registry.insecure:
        return '"insecure-registries" in its daemon.json'
    return f"its CA in /etc/docker/certs.d/{site.address}/ca.crt"


def _as_root(site: Site) -> str:
    return 'Repeat as root: sudo -E env "PATH=$PATH" "HOME=$HOME" invoke registry.trust'


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PrerequisiteError(
            f"registry.ca_file cannot be read: {error.strerror}",
            where=str(path),
            hint="It names a copy of the CA that registry.up made: registry.status says where that is.",
        ) from error


def _has_content(path: Path, content: bytes) -> Answer:
    try:
        return YES if path.read_bytes() == content else no("another CA is there")
    except FileNotFoundError:
        return no("it is not there")
    except OSError as error:
        return no(str(error))
