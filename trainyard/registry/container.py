"""The container of a registry: made as its settings say, made anew, over the same images, when they differ."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

from trainyard.errors import OutsideError
from trainyard.registry import authority, inside, passwords, room
from trainyard.registry.site import LABEL, Site
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container, NewContainer, NewFile
from trainyard.seams.registry.auth import Login
from trainyard.steps import YES, Answer, no

# A hash of what the container was made with. Passwords and certificates are compared with what is inside.
SETTINGS_LABEL = "io.trainyard.registry.settings"
# Whether it then goes on running is another question.
STARTED = ("running", "restarting")


def is_started(site: Site) -> Answer:
    """Say whether the container that the settings ask for was started."""
    container = site.container
    if container is None:
        return no("there is no container")
    different = _difference(site, container)
    if different:
        return no(different)
    return YES if container.state in STARTED else no(f"it is {container.state}")


def start(site: Site) -> None:
    """Make the container that the settings ask for, or start it if that is all it lacks."""
    container = site.container
    identity = None
    if container is None or _difference(site, container):
        made = _new_files(site)
        if container:
            # It may be in the middle of writing an upload.
            containers.stop(site.engine, container.id)
            containers.remove(site.engine, container.id)
        identity = containers.create(site.engine, _wanted(site))
        containers.put_files(site.engine, identity, made)
    try:
        containers.start(site.engine, site.name)
    except OutsideError as error:
        if identity:
            # What never ran is of no use, and only in the way of its name.
            with suppress(OutsideError):
                containers.remove(site.engine, identity)
        raise _cannot_start(site, error) from error


def _difference(site: Site, container: Container) -> str | None:
    """Say in what a container differs from the settings."""
    if container.state == "created":
        # Cut short before it had its files, or it could not be started.
        return "it was never started"
    if container.labels.get(SETTINGS_LABEL) != _settings_hash(site):
        return "it was made with other settings"
    login = _login(site)
    if login:
        htpasswd = containers.read_file(site.engine, container.id, inside.HTPASSWD) or b""
        if not passwords.matches(htpasswd, login.username, login.password):
            return "it was made with another password"
    return None if site.registry.insecure else authority.problem_inside(site, container)


def _new_files(site: Site) -> dict[str, NewFile]:
    login = _login(site)
    htpasswd = passwords.line(login.username, login.password) if login else None
    if site.registry.insecure:
        return inside.files(server=None, ca=None, htpasswd=htpasswd)
    ca = authority.pair(site)
    return inside.files(server=authority.server(site, ca), ca=ca.certificate, htpasswd=htpasswd)


def _login(site: Site) -> Login | None:
    """Return the user of the cluster file; what `docker login` keeps is no wish for a password."""
    return site.login if site.registry.username else None


def _wanted(site: Site) -> NewContainer:
    return NewContainer(
        name=site.name,
        image=site.registry.image,
        labels={LABEL: site.address, SETTINGS_LABEL: _settings_hash(site)},
        command=[inside.CONFIG],
        ports={inside.PORT: (room.bind_address(site), site.place.port)},
        volumes={site.name: inside.DATA},
        restart="unless-stopped",
    )


def _settings_hash(site: Site) -> str:
    registry = site.registry
    known = [registry.image, room.bind_address(site), site.place.port, registry.insecure, registry.username]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:12]


def _cannot_start(site: Site, error: OutsideError) -> OutsideError:
    """Say in our words why Docker could not start it."""
    said = error.where or ""
    if "port is already allocated" in said or "address already in use" in said:
        return OutsideError(
            f"port {site.place.port} of {site.place.host} was taken meanwhile",
            where=said,
            hint="Choose another one in registry.address.",
        )
    if "cannot assign requested address" in said:
        return OutsideError(
            f"{site.place.host} is not an address of {site.engine.host}",
            where=said,
            hint="registry.address must be one of the machine that Docker runs on.",
        )
    if "unable to start container process" in said:
        return OutsideError(
            f"{site.registry.image} cannot be run as a registry",
            where=said,
            hint="registry.image must be one like docker.io's registry:2, which is given its configuration file.",
        )
    return error
