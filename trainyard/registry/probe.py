"""Prove that Docker pulls from a registry: send an image of a few bytes there, and fetch it back."""

from __future__ import annotations

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.registry import settings
from trainyard.registry.site import Site
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.registry.errors import CertificateError
from trainyard.steps import YES, Answer, Step, no

NAME = "trainyard/probe:1"


def steps(site: Site, *, after: str | None) -> list[Step]:
    """Return the steps; the pull is done anew each time, as nothing else proves it."""
    pulled: list[str] = []
    there = f"{_reference(site)} is in the registry"
    return [
        Step(there, done=lambda: _is_there(site), do=lambda: _send(site), after=after),
        Step(
            "A pull proves it",
            done=lambda: YES if pulled else no("not tried yet"),
            do=lambda: pulled.append(_pull(site)),
            after=there,
        ),
    ]


def docker_is_let_in(site: Site) -> bool:
    """Say whether the registry's certificate is good enough for Docker, as it is now."""
    try:
        docker_push.digest_there(site.engine, _reference(site), login=site.login)
    except CertificateError:
        return False
    return True


def _reference(site: Site) -> str:
    return f"{site.address}/{site.registry.repository(NAME)}"


def _is_there(site: Site) -> Answer:
    """Ask as Docker, not as ourselves: it is Docker that has to be let in."""
    try:
        found = docker_push.digest_there(site.engine, _reference(site), login=site.login)
    except CertificateError as error:
        if site.registry.insecure or settings.ca_file(site.registry, site.environ):
            raise
        raise PrerequisiteError(
            f"the certificate of registry {site.address} is of a CA that Docker does not know, and nor do we",
            where=error.where,
            hint="Name a copy of its CA as registry.ca_file; registry.up left it on the machine that it ran on.",
        ) from error
    return YES if found else no("it is not there")


def _send(site: Site) -> None:
    reference = _reference(site)
    try:
        docker_images.make_tiny(site.engine, reference)
        docker_push.push(
            site.engine,
            reference,
            login=site.login,
            on_progress=lambda seen: None,
            on_retry=lambda: None,
            on_sent=lambda layer: None,
        )
    finally:
        docker_images.remove(site.engine, reference)


def _pull(site: Site) -> str:
    """Fetch the probe and remove it again; return its id."""
    reference = _reference(site)
    docker_images.remove(site.engine, reference)
    try:
        docker_images.pull(site.engine, reference, auth=site.login.for_engine(site.address) if site.login else None)
        found = docker_images.inspect(site.engine, reference)
        if found is None:
            raise OutsideError(f"Docker says that it pulled {reference}, and does not have it")
        return found.id
    finally:
        docker_images.remove(site.engine, reference)
