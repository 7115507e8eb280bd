"""What is to be done about the KubeRay operator: nothing, wait for it, install it, or upgrade one of ours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from trainyard import versions
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.operators import operator
from trainyard.backends.kuberay.operators.operator import HelmRelease, Operator
from trainyard.backends.kuberay.there import There, seen
from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Helm, Release
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import NAMESPACE
from trainyard.spec.kubernetes import Operator as Section

# How Helm releases of ours describe themselves; what was asked for stands behind it.
BY_US = "by trainyard"
# What the status of a release begins with that Helm works on, or did when it was killed.
PENDING = "pending-"
# What it is when Helm could not make it; it says why then in place of our words.
FAILED = "failed"


@dataclass(frozen=True)
class Installing:
    """What is to be done. `hidden`: the user may not see whether there is an operator; `foreign`: it is not ours."""

    what: Literal["hidden", "use", "install", "upgrade"]
    version: str
    there: Operator | None = None
    remark: str = ""
    foreign: bool = False

    @property
    def changes(self) -> bool:
        """Say whether Helm has something to do."""
        return self.what in ("install", "upgrade")


def decide(there: There, section: Section, namespace: str, *, ours: Release | None, version: str) -> Installing:
    """Return what is to be done. `ours` is the Helm release that we made, `version` that of the chart in the file.

    Raises PrerequisiteError where an operator is missing, too old, or not for this namespace, and not ours to change.
    """
    if there.operators is None:
        _refuse_unknown(there)
        return Installing("hidden", version)
    found = operator.for_namespace(there.operators, namespace)
    if found is None:
        _refuse_uninstalled(section)
        return Installing("install", version)
    is_foreign = ours is None or found.release != HelmRelease(section.release, section.namespace)
    if ours is None or is_foreign or not section.install:
        operator.refuse_old(found)
        return Installing("use", found.version or version, found, foreign=is_foreign)
    if ours.description == description(section, version):
        return Installing("use", found.version or version, found)
    if found.version and operator.is_older(version, found.version):
        operator.refuse_old(found)
        said = f"the KubeRay operator is {found.version}, newer than the {version} of the file; it is used as it is"
        return Installing("use", found.version, found, remark=said)
    return Installing("upgrade", version, found)


def description(section: Section, version: str) -> str:
    """Return how a release of ours describes itself: equal ones are of the same chart with the same values."""
    asked = json.dumps([version, section.values], sort_keys=True)
    return f"{BY_US}: {version}, values {hashlib.sha256(asked.encode()).hexdigest()[:12]}"


def installed_by_us(kube: Kube, helm: Helm, section: Section) -> HelmRelease | None:
    """Return the Helm release of an operator that we installed, None if somebody else did, or nobody; only asks.

    One that was killed before it had a Deployment is found under the name that the file gives it.
    """
    found = operator.find(kube, section.namespace) or ()
    asked = HelmRelease(section.release, section.namespace)
    for one in dict.fromkeys((*operator.releases(found), asked)):
        if own_release(kube, helm, one) is not None:
            return one
    return None


def own_release(kube: Kube, helm: Helm, asked: HelmRelease) -> Release | None:
    """Return a Helm release if we installed it, or began to.

    A Helm that was killed, or that failed, has written Helm's own words; the namespace that we made for it says who it
    was.
    """
    release = helm.release(asked.name, asked.namespace)
    if release is None or str(release.description).startswith(BY_US):
        return release
    if not release.status.startswith((PENDING, FAILED)):
        return None
    namespace = seen(lambda: kube.get(NAMESPACE, asked.namespace)).found or {"metadata": {}}
    made_by = (namespace["metadata"].get("labels") or {}).get(names.MADE_BY)
    return release if made_by == names.US else None


def refuse_foreign(kube: Kube, helm: Helm, asked: HelmRelease, *, bears_pending: bool = False) -> None:
    """Raise PrerequisiteError if a Helm release of this name is somebody else's: it is not touched.

    `bears_pending`: one that is being made may be an operator's in a moment.
    """
    found = helm.release(asked.name, asked.namespace)
    if found is None or (bears_pending and found.status.startswith(PENDING)):
        return
    if own_release(kube, helm, asked) is not None:
        return
    raise PrerequisiteError(
        f"there is a Helm release {asked.name} in namespace {asked.namespace} that Trainyard did not make",
        where=f"its status is {found.status}; {found.description}".rstrip("; "),
        hint="If its operator runs by now, repeat the command, and it is used. If nobody needs that release: "
        f"helm uninstall {asked.name} -n {asked.namespace}. Or name another one: kuberay.operator.release.",
    )


def _refuse_unknown(there: There) -> None:
    if there.serves:
        return
    raise PrerequisiteError(
        "this Kubernetes does not know what a RayCluster is, and you may not see whether KubeRay's operator is there",
        hint="Ask whoever runs it for the KubeRay operator with its CRDs, "
        f"{versions.OLDEST_KUBERAY} or newer; or run cluster.up once with the rights to install it.",
    )


def _refuse_uninstalled(section: Section) -> None:
    if section.install:
        return
    raise PrerequisiteError(
        "there is no KubeRay operator, and the cluster file says that somebody else installs it",
        where="kuberay.operator.install: false",
        hint=f"Have {versions.OLDEST_KUBERAY} or newer installed; or leave `install` out, and cluster.up does it.",
    )
