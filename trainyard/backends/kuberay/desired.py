"""What `cluster.up` is to make on Kubernetes, and what was there when the command began."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import image as images
from trainyard.backends.kuberay import location, naming, operator, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest.documents import Documents, Inputs, documents
from trainyard.backends.kuberay.operator import Kuberay
from trainyard.backends.kuberay.queries import if_allowed
from trainyard.errors import NotReadyError
from trainyard.images.types import PinnedImage
from trainyard.seams.kube.types import NAMESPACE, POD, RAY_CLUSTER, SECRET, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection


@dataclass(frozen=True)
class Desired:
    """A cluster as it should be, and what there was.

    `live` is the RayCluster, None if there was none; `pods` are those that KubeRay made for it, or for one before it.
    `pull_secret` is None where the image needs no login of ours; `takes_login_back`: it needed one once.
    """

    spec: ClusterSpec
    tools: Tools
    location: Location
    image: PinnedImage
    documents: Documents
    kuberay: Kuberay
    pull_secret: Object | None
    takes_login_back: bool
    has_namespace: bool
    live: Object | None
    pods: tuple[Object, ...]

    @property
    def running(self) -> Object | None:
        """Return the RayCluster that is to be kept or changed: not one that is being removed."""
        return None if self.live is None or pods.is_leaving(self.live) else self.live

    @property
    def never_started(self) -> bool:
        """Say whether nothing can run on the RayCluster that is there: its head was never ready."""
        live = self.live
        started = ("HeadPodReady", "RayClusterProvisioned")
        return live is not None and not any(pods.condition(live, kind).get("status") == "True" for kind in started)

    @property
    def is_new(self) -> bool:
        """Say whether the RayCluster is to be made, or made anew."""
        return self.running is None or self.tools.recreate


def read(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> Desired:
    """Find out what the file means on its Kubernetes. Raises what stands in the way."""
    where = location.of_section(spec, tools, section)
    location.refuse_other(tools, where)
    kube, name, space = where.kube, spec.name, where.namespace
    # Who is not known, or not answered, hears it once, and from the first question.
    live = kube.get(RAY_CLUSTER, name, namespace=space)
    if live is not None:
        location.refuse_foreign(live, where)
    runs = None if live is None or tools.recreate else _annotation(live)
    with ThreadPoolExecutor(6) as pool:
        asked_image = pool.submit(images.pinned, spec, tools, where, running=runs)
        namespace = pool.submit(if_allowed, lambda: kube.get(NAMESPACE, space))
        login = pool.submit(if_allowed, lambda: kube.get(SECRET, naming.pull_secret(name), namespace=space))
        own = pool.submit(kube.list, POD, namespace=space, labels=naming.of_ray_cluster(name))
        kuberay = operator.read(where, tools)
        _refuse_leaving(namespace.result().found, where)
        image = asked_image.result()
    # The cluster's own image goes with the logins that it was made with.
    own_secret = naming.pull_secret(name)
    made = None if image.is_kept else images.pull_secret(name, image, others=section.pull_secrets, name=own_secret)
    used = _pull_secrets(live) if image.is_kept and live else (*([own_secret] if made else []), *section.pull_secrets)
    reply, secret = namespace.result(), login.result().found
    return Desired(
        spec=spec,
        tools=tools,
        location=where,
        image=image,
        documents=documents(
            Inputs(spec, section, _same(image, live), simulated=simulates(spec, section), pull_secrets=used)
        ),
        kuberay=kuberay,
        pull_secret=made,
        takes_login_back=secret is not None and location.is_ours(secret, name) and own_secret not in used,
        has_namespace=reply.found is not None or reply.refusal is not None,
        live=live,
        pods=tuple(own.result()),
    )


def simulates(spec: ClusterSpec, section: KuberaySection) -> bool:
    """Say whether the GPUs of the file are numbers of Ray only."""
    return section.simulated_gpus and bool(spec.head.gpus or any(group.gpus for group in spec.workers))


def _same(image: PinnedImage, live: Object | None) -> str:
    """Return the reference that the cluster runs if it means the same image, whatever registry it names."""
    runs = _annotation(live) if live else ""
    return runs if image.digest and runs.endswith(f"@{image.digest}") else image.reference


def _annotation(live: Object) -> str:
    return str((live["metadata"].get("annotations") or {}).get(naming.IMAGE) or "")


def _pull_secrets(live: Object) -> tuple[str, ...]:
    pod = live["spec"]["headGroupSpec"]["template"]["spec"]
    return tuple(secret["name"] for secret in pod.get("imagePullSecrets") or ())


def _refuse_leaving(namespace: Object | None, where: Location) -> None:
    status = (namespace or {}).get("status") or {}
    if status.get("phase") != "Terminating":
        return
    left = [each["message"] for each in status.get("conditions") or () if each.get("status") == "True"]
    raise NotReadyError(
        f"namespace {where.namespace} is being removed",
        where="; ".join(left) or None,
        hint=f"Repeat the command when it is gone: kubectl get namespace {where.namespace}",
    )
