"""Why the KubeRay operator does not run, once that has lasted long enough."""

from __future__ import annotations

from trainyard.backends.kuberay import diagnosis, pods, snapshot
from trainyard.backends.kuberay.debounce import Debounce
from trainyard.backends.kuberay.queries import if_allowed
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, Object


class Health:
    """Looks at an operator again and again; what ends by itself soon is no cause."""

    def __init__(self, kube: Kube, debounce: Debounce | None = None) -> None:
        self._kube = kube
        self._debounce = debounce or Debounce()

    def refuse_broken(self, deployment: Object) -> None:
        """Raise the error that says why a Deployment has no pod that is ready, if that is known by now."""
        namespace = deployment["metadata"]["namespace"]
        labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        # Who may see the Deployment may not always see its pods.
        found = if_allowed(lambda: self._kube.list(POD, namespace=namespace, labels=selector)).found or []
        observed = snapshot.of_pods(self._kube, namespace, found, owner=deployment, name=pods.name)
        expired = self._debounce.expired(diagnosis.of_deployment(observed))
        if expired is not None:
            raise diagnosis.to_error(expired, f"the KubeRay operator, namespace {namespace}")
