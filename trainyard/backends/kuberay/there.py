"""What Kubernetes has already, as far as the user may see it; everything is asked side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainyard.backends.kuberay.operators import definitions, operator
from trainyard.backends.kuberay.operators.operator import Operator
from trainyard.backends.kuberay.site import Site, pods
from trainyard.errors import NotReadyError
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import CRD, NAMESPACE, RAY_CLUSTER, Object
from trainyard.spec.kubernetes import Operator as OperatorSection

QUESTIONS_AT_ONCE = 8
Found = TypeVar("Found")
Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Seen(Generic[Found]):
    """An answer of the API, or why the user may not have one."""

    found: Found | None
    refusal: ForbiddenError | None = None


@dataclass(frozen=True)
class There:
    """What there is. `serves`: RayClusters are known. `operators` is None where the user may not look for them."""

    version: str
    serves: bool
    namespace: Seen[Object]
    crd: Seen[Object]
    operators: tuple[Operator, ...] | None
    ray_cluster: Seen[Object]
    pods: Seen[tuple[Object, ...]]

    @property
    def has_namespace(self) -> bool:
        """Say whether the namespace is there; one that may not be looked at is taken to be."""
        return self.namespace.found is not None or self.namespace.refusal is not None


def look(site: Site, section: OperatorSection) -> There:
    """Ask for all of it. Raises NotReadyError while the namespace is being removed."""
    kube = site.kube
    # Who is not known, or not answered, hears it once and at once.
    version = kube.version()
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        serves = pool.submit(kube.serves, RAY_CLUSTER)
        namespace = pool.submit(seen, lambda: kube.get(NAMESPACE, site.namespace))
        crd = pool.submit(seen, lambda: kube.get(CRD, definitions.RAY_CLUSTERS))
        operators = pool.submit(operator.find, kube, section.namespace, site.namespace)
        ray_cluster = pool.submit(seen, lambda: kube.get(RAY_CLUSTER, site.name, namespace=site.namespace))
        own = pool.submit(seen, lambda: tuple(pods(site)))
        found = There(
            version=version,
            serves=serves.result(),
            namespace=namespace.result(),
            crd=crd.result(),
            operators=operators.result(),
            ray_cluster=ray_cluster.result(),
            pods=own.result(),
        )
    _refuse_leaving(found.namespace.found, site)
    return found


def seen(ask: Callable[[], Found | None]) -> Seen[Found]:
    """Return what a question is answered, or that it may not be asked."""
    try:
        return Seen(ask())
    except ForbiddenError as error:
        return Seen(None, error)


def side_by_side(ask: Callable[[Asked], Found], each: Iterable[Asked]) -> list[Found]:
    """Return the answers in the order of what was asked about; the first question that fails raises."""
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        return list(pool.map(ask, each))


def _refuse_leaving(namespace: Object | None, site: Site) -> None:
    if namespace is None or (namespace.get("status") or {}).get("phase") != "Terminating":
        return
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    left = [one["message"] for one in conditions if one.get("status") == "True" and one.get("message")]
    raise NotReadyError(
        f"namespace {site.namespace} is being removed",
        where="; ".join(left) or None,
        hint=f"Repeat the command when it is gone: kubectl get namespace {site.namespace}",
    )
