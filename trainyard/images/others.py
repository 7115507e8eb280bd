"""Which exact image a full reference means: one that others built, in a registry or on one engine only."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.errors import PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import HUB, ImageFacts
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_login import docker_login, login
from trainyard.seams.registry_refusals import BusyError, GoneError, MissingError, RegistryError
from trainyard.spec.docker import Registry


def of_others(asked: str, registry: Registry | None, environ: Mapping[str, str], engine: Engine) -> PinnedImage:
    """Return the digest that a reference means now; what only this engine has is pinned by its id."""
    repository, digest = _split_digest(asked)
    if digest:
        return PinnedImage(asked, f"{repository}@{digest}", digest, _login_of(asked, registry, environ))
    here = docker_images.inspect(engine, asked)
    if here is not None and _was_made_here(asked, here, engine, environ):
        return PinnedImage(asked, here.id, None)
    who = _login_of(asked, registry, environ)
    try:
        digest = docker_push.digest_there(engine, asked, login=who)
    except (GoneError, BusyError):
        # What was pulled before can be run; a refusal is told, lest an old image runs for ever.
        if here is None:
            raise
    digest = digest or (here.digest_in(repository) if here else None)
    if digest:
        return PinnedImage(asked, f"{repository}@{digest}", digest, who)
    if here is not None:
        return PinnedImage(asked, here.id, None)
    raise MissingError(
        f"there is no image {asked}: not in its registry, and not on the Docker engine ({engine.host})",
        hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
    )


def _login_of(asked: str, registry: Registry | None, environ: Mapping[str, str]) -> Login | None:
    host = docker_images.registry_of(asked)
    return login(registry, environ) if registry and registry.address == host else docker_login(host, environ)


def _was_made_here(asked: str, here: ImageFacts, engine: Engine, environ: Mapping[str, str]) -> bool:
    """Say whether an image was built or loaded here: its name has no registry's host, and it was never pulled.

    An engine notes a digest in the image's repository when it pulls. Engines with containerd's image store note one
    for every image, the image's id: there, only Docker Hub can say whether it has this image. It does not tell a
    missing repository from a private one, so that every refusal means no.
    """
    if docker_images.registry_of(asked) != HUB or asked.startswith(f"{HUB}/"):
        return False
    noted = here.digest_in(_split_digest(asked)[0])
    if noted != here.id:
        return noted is None
    try:
        return docker_push.digest_there(engine, asked, login=docker_login(HUB, environ)) != noted
    except (RegistryError, PrerequisiteError):
        return True


def _split_digest(asked: str) -> tuple[str, str | None]:
    """Return the repository without a tag, and the digest if one is given."""
    name, at, digest = asked.partition("@")
    return docker_images.split_tag(name)[0], digest if at else None
