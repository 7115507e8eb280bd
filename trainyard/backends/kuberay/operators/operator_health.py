"""Why the KubeRay operator does not run, once that has lasted long enough."""

from __future__ import annotations

from functools import cache

from trainyard.backends.kuberay import beside
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause
from trainyard.backends.kuberay.causes.facts import Facts
from trainyard.backends.kuberay.causes.patience import Patience
from trainyard.backends.kuberay.there import seen
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, Object

TAIL_LINES = 20


class Health:
    """Looks at an operator again and again; what ends by itself soon is no cause."""

    def __init__(self, kube: Kube, patience: Patience | None = None) -> None:
        self._kube = kube
        self._patience = patience or Patience()

    def refuse_broken(self, deployment: Object) -> None:
        """Raise the error that says why a Deployment has no pod that is ready, if that is known by now."""
        namespace = deployment["metadata"]["namespace"]
        worn = self._patience.over(cause.of_deployment(self._facts(deployment, namespace)))
        if worn is not None:
            raise cause.error(worn, f"the KubeRay operator, namespace {namespace}")

    def _facts(self, deployment: Object, namespace: str) -> Facts:
        labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        # Whoever may see the Deployment need not be allowed to see its pods.
        found = seen(lambda: self._kube.list(POD, namespace=namespace, labels=selector)).found or []
        waiting = beside.unready(found)
        return Facts(
            pods=tuple(found),
            events=beside.events(self._kube, namespace, [deployment, *waiting]),
            owner=deployment,
            nodes=cache(lambda: beside.hosts(self._kube, waiting)),
            words=lambda pod, container, former: beside.words(
                self._kube, pod, container, namespace=namespace, former=former, lines=TAIL_LINES
            ),
            name=pods.name,
        )
