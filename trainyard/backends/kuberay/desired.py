"""The desired cluster on Kubernetes, and the existing one.

Kubelets log in to registries only with user and password (core/v1,
kubernetes.io/dockerconfigjson). They cannot use the token that some `docker
login`s store instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from trainyard.backends.contract import Site
from trainyard.backends.kuberay import location, naming, operator, pods, rights
from trainyard.backends.kuberay.groups import HEAD
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import Documents, documents, groups
from trainyard.backends.kuberay.manifest.pod import Inputs
from trainyard.backends.kuberay.operator import Kuberay
from trainyard.backends.kuberay.snapshot import cluster_pods
from trainyard.errors import PrerequisiteError
from trainyard.images import resolve
from trainyard.images.resolve import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

# Kubelets find a login for Docker Hub only under this key (kubernetes,
# pkg/credentialprovider/keyring.go).
HUB_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True)
class Desired:
    """The desired cluster, and the existing one.

    `live` is the existing RayCluster. `pods` are its pods, or those of a former
    one of this name. `image` is the head's; `images` has the images of groups
    that use another. `pull_secret` is the Secret that Trainyard makes; None if
    the images need no login.
    """

    spec: ClusterSpec
    site: Site
    location: Location
    image: PinnedImage
    images: Mapping[str, PinnedImage]
    documents: Documents
    kuberay: Kuberay
    pull_secret: Object | None
    live: Object | None
    pods: Sequence[Object]

    @property
    def running(self) -> Object | None:
        if self.live is None or pods.is_leaving(self.live):
            return None
        return self.live

    @property
    def keeps_logins(self) -> bool:
        """Say whether an unresolved image is kept, and with it the logins."""
        return any(image.is_kept for image in (self.image, *self.images.values()))

    @property
    def never_started(self) -> bool:
        """Say whether the head was never ready: there can be no runs then."""
        live = self.live
        if live is None:
            return False
        was_ready = pods.is_true(live, "HeadPodReady")
        return not was_ready and not pods.is_true(live, "RayClusterProvisioned")

    @property
    def is_new(self) -> bool:
        return self.running is None or self.site.wishes.recreate


def read(spec: ClusterSpec, site: Site, section: KuberaySection) -> Desired:
    """Ask Kubernetes for the existing cluster, the registry for the images.

    Raises an error if the cluster cannot be made, such as for missing rights or
    a missing image.
    """
    where = location.of_section(spec, site, section)
    location.refuse_other(site, where)
    # This request comes before the parallel ones, so that a rejected login is only one error.
    live = _live(where, spec)
    if live is None or site.wishes.recreate:
        rights.refuse_missing(where, rights.needed(spec, section))

    running = _running(live)
    kept = running
    if site.wishes.recreate:
        kept = {}

    with ThreadPoolExecutor(3) as pool:
        pinned = partial(resolve.pinned, spec, site.environ, directory=site.directory)
        of_groups = partial(resolve.of_groups, spec, site.environ, directory=site.directory)
        pinning = pool.submit(pinned, running=kept.get(HEAD))
        pinning_of_groups = pool.submit(of_groups, running=kept)
        listing = pool.submit(cluster_pods, where)
        kuberay = operator.read(where, site)
        image = pinning.result()
        images = pinning_of_groups.result()

    secret, pull_secrets = _logins(spec.name, section, resolve.distinct(image, images), live)
    of_head = _reference(image, running.get(HEAD))
    references = {name: _reference(other, running.get(name)) for name, other in images.items()}
    inputs = Inputs(spec, section, of_head, pull_secrets, where.owner, references)
    return Desired(
        spec=spec,
        site=site,
        location=where,
        image=image,
        images=images,
        documents=documents(inputs),
        kuberay=kuberay,
        pull_secret=secret,
        live=live,
        pods=listing.result(),
    )


def _logins(
    cluster: str, section: KuberaySection, images: Sequence[PinnedImage], live: Object | None
) -> tuple[Object | None, tuple[str, ...]]:
    """Return the Secret to make, and the names of all pull Secrets."""
    if live and any(image.is_kept for image in images):
        # A kept image is pulled with the Secrets that the cluster was made with.
        pod = live["spec"]["headGroupSpec"]["template"]["spec"]
        return None, tuple(secret["name"] for secret in pod.get("imagePullSecrets") or ())

    name = naming.pull_secret(cluster)
    secret = pull_secret(cluster, images, others=section.pull_secrets, name=name)
    if secret is None:
        return None, tuple(section.pull_secrets)
    return secret, (name, *section.pull_secrets)


def _running(live: Object | None) -> dict[str, str]:
    if live is None:
        return {}
    running = {}
    for name, group in {HEAD: live["spec"]["headGroupSpec"], **groups(live)}.items():
        container = group["template"]["spec"]["containers"][0]
        running[name] = str(container.get("image", ""))
    return running


def _reference(image: PinnedImage, running: str | None) -> str:
    """Return the running reference if its digest is the image's.

    Another name of the same image is no drift.
    """
    if running and image.digest and running.endswith(f"@{image.digest}"):
        return running
    return image.reference


def _live(where: Location, spec: ClusterSpec) -> Object | None:
    """Return the RayCluster; if that is forbidden, name all missing rights."""
    try:
        return location.ray_cluster(where)
    except ForbiddenError:
        rights.refuse_missing(where, rights.needed(spec, where.section))
        raise


def pull_secret(
    cluster: str, images: Sequence[PinnedImage], *, others: Sequence[str], name: str
) -> Object | None:
    """Return the Secret with the images' logins; None if they need none.

    `others` are the file's kuberay.pull_secrets. A login that only Docker can
    use raises PrerequisiteError; with `others`, it is left out.
    """
    logins: dict[str, dict[str, str]] = {}
    for image in images:
        logins |= _login(image, others=others)
    if not logins:
        return None
    content = json.dumps({"auths": logins}, sort_keys=True)
    return {
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "labels": naming.labels(cluster)},
        "data": {".dockerconfigjson": base64.b64encode(content.encode()).decode()},
    }


def _login(image: PinnedImage, *, others: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return an image's login under the key that kubelets expect."""
    login = image.login
    if login is None or (others and not login.password):
        return {}

    registry = docker_images.registry_of(image.reference)
    if not login.password:
        raise PrerequisiteError(
            f"the login for registry {registry} is a token that only Docker can use: Kubernetes "
            "needs a user and a password",
            where=login.source,
            hint="Name a user in the cluster file (registry.username with password_env or "
            "password_file), or a pull Secret of the namespace: kuberay.pull_secrets.",
        )

    token = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    entry = {"username": login.username, "password": login.password, "auth": token}
    if registry == docker_images.HUB:
        return {HUB_KEY: entry}
    return {registry: entry}
