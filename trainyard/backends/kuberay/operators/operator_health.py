"""Why the KubeRay operator does not run, once that has lasted long enough."""

from __future__ import annotations

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause, event
from trainyard.backends.kuberay.causes.facts import Facts
from trainyard.backends.kuberay.causes.patience import Patience
from trainyard.backends.kuberay.there import seen
from trainyard.errors import TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import EVENT, NODE, POD, Object

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
        events = seen(lambda: self._kube.list(EVENT, namespace=namespace)).found or []
        return Facts(
            pods=tuple(found),
            events=tuple(sorted(events, key=event.when)),
            owner=deployment,
            nodes=self._nodes,
            words=lambda pod, container, former: self._words(pod, container, namespace, former=former),
            name=pods.name,
        )

    def _nodes(self) -> dict[str, Object]:
        found = seen(lambda: self._kube.list(NODE)).found or []
        return {one["metadata"]["name"]: one for one in found}

    def _words(self, pod: pods.Pod, container: str, namespace: str, *, former: bool) -> str:
        try:
            return self._kube.logs(
                pods.name(pod), namespace=namespace, container=container, previous=former, lines=TAIL_LINES
            )
        except TrainyardError as error:
            return f"(its log cannot be read: {error.what})"
