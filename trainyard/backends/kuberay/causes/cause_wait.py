"""Why a worker does not get through to a head that is ready: it stands in KubeRay's container wait-gcs-ready; pure."""

from __future__ import annotations

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Cause, Facts
from trainyard.backends.kuberay.pod import Pod

# It asks every 5 s, and each question is an `import ray`, which takes seconds on a busy machine.
WAIT_SECONDS = 30.0
ABOUT = "wait"


def cause(pod: Pod, facts: Facts) -> Cause | None:
    """Return why a worker waits for a head that is ready, None if it does not."""
    if facts.head is None or not pods.is_ready(facts.head):
        return None
    waiting = [one for one in pods.containers(pod) if one.name == names.WAIT_CONTAINER and one.running_since]
    if not waiting:
        return None
    return Cause(
        what="cannot get through to the head, which is ready; seen from there:",
        brief="waits for the head, which is ready",
        about=ABOUT,
        hint="Does the cluster's DNS answer (kubectl get pods -n kube-system), does no NetworkPolicy stand between the "
        "pods, and is the head's token still the one in its Secret (`cluster.up --recreate` gives all the same)?",
        words=lambda: facts.probe(pod),
        patience=WAIT_SECONDS,
        is_hopeless=lambda: not facts.resolves(pod),
    )
