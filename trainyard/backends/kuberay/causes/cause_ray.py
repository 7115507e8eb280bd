"""Why Ray itself does not answer, though Kubernetes calls its head ready; pure."""

from __future__ import annotations

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Cause, Object
from trainyard.backends.kuberay.site import Site
from trainyard.errors import NotReadyError
from trainyard.seams.ray_api import RefusedError

SILENT_SECONDS = 60.0
REFUSED_SECONDS = 3.0


def other_token(error: RefusedError, site: Site) -> Cause:
    """Return that the head was started with another token than the cluster's Secret has now."""
    return Cause(
        what="wants another token than the cluster's Secret has: it was changed or made anew while the head ran",
        brief="wants another token",
        who=("head",),
        hint=f"To give the one in Secret {names.token_secret(site.name)} to every node, which ends all that runs: "
        f"invoke cluster.up --recreate",
        said=error.what,
        patience=REFUSED_SECONDS,
    )


def silent(said: str, head: Object | None) -> Cause:
    """Return that the dashboard of a head that is ready does not answer; `said` is what came of asking it."""
    return Cause(
        what="is ready for Kubernetes, and its dashboard does not answer through the port-forward",
        brief="its dashboard does not answer",
        who=("head",),
        hosts=(pods.host(head),) if head else (),
        kind=NotReadyError,
        hint="May you forward ports (kubectl auth can-i create pods/portforward), and does nothing between here and "
        "the API server cut such connections off?",
        said=said,
        patience=SILENT_SECONDS,
    )
