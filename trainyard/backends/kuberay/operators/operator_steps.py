"""The steps that bring KubeRay to Kubernetes: its CRDs first, then its operator by Helm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.operators import definitions, installing, operator
from trainyard.backends.kuberay.operators.installing import Installing
from trainyard.backends.kuberay.operators.operator import HelmRelease, Operator
from trainyard.backends.kuberay.operators.operator_health import Health
from trainyard.backends.kuberay.there import side_by_side
from trainyard.errors import OutsideError
from trainyard.seams.helm import Chart, Helm
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ConflictError
from trainyard.seams.kube.types import CRD, NAMESPACE, Object
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import YES, Answer, Step, no

# A Helm release that is pending for longer was left by a command that was killed: without --wait, Helm takes seconds.
PENDING_SECONDS = 15.0
# What Helm says of a release whose removal was killed.
_HALF_REMOVED = "has no deployed releases"
# The operator's image is some 60 MB, and may come from far away.
AVAILABLE_SECONDS = 300.0


@dataclass
class Kuberay:
    """KubeRay as a cluster file wants it, on one Kubernetes; the chart is read once, and only if it is needed.

    `version` is that of the chart.
    """

    kube: Kube
    helm: Helm
    section: Section
    chart: Chart
    version: str
    plan: Installing
    sleep: Callable[[float], None] = time.sleep
    _crds: list[Object] = field(default_factory=list)

    def crds(self) -> list[Object]:
        """Return the chart's CRDs."""
        if not self._crds:
            self._crds.extend(self.helm.crds(self.chart))
        return self._crds

    def operators(self) -> tuple[Operator, ...]:
        """Return the operators that there are."""
        return operator.find(self.kube, self.section.namespace) or ()


def definitions_step(kuberay: Kuberay) -> Step:
    """Return the step after which Kubernetes knows what the chart defines; nothing newer is replaced.

    The CRD of RayClusters comes last: once it is of this KubeRay, so are the others, and the chart need not be read.
    """

    def done() -> Answer:
        if _has_all(kuberay):
            return YES
        lacking = [
            name
            for name, crd, ours in _crds(kuberay)
            if crd is None
            or not definitions.is_served(crd)
            or not definitions.is_as_new(crd, ours, version=kuberay.version)
        ]
        return no(f"not there, or older: {', '.join(lacking)}") if lacking else YES

    def apply() -> None:
        for _, crd, ours in _crds(kuberay):
            if crd is None or not definitions.is_as_new(crd, ours, version=kuberay.version):
                marked = definitions.to_apply(ours, version=kuberay.version, is_new=_is_new(crd))
                kuberay.kube.apply(CRD, marked)

    theirs = "; its operator is somebody else's" if kuberay.plan.foreign else ""
    title = f"Tell Kubernetes what a RayCluster is (CRDs of KubeRay {kuberay.version}{theirs})"
    return Step(title, done=done, do=apply)


def operator_step(kuberay: Kuberay, namespace: str, *, after: str | None) -> Step:
    """Return the step after which an operator looks after the namespace."""
    plan = kuberay.plan
    health = Health(kuberay.kube)
    is_installed = not plan.changes

    def done() -> Answer:
        nonlocal is_installed
        is_installed = is_installed or _is_installed(kuberay)
        if not is_installed:
            return no("it is not installed" if plan.there is None else f"{plan.there.version} is installed")
        found = operator.for_namespace(kuberay.operators(), namespace)
        if found is None:
            return no("it is not there")
        if not found.available:
            health.refuse_broken(found.deployment)
            return no("it does not run yet")
        return Answer(True, plan.remark)

    def install() -> None:
        if not is_installed:
            _install(kuberay)

    return Step(_title(plan), done=done, do=install, deadline=AVAILABLE_SECONDS, every=0.5, after=after)


def _title(plan: Installing) -> str:
    if plan.what == "install":
        return f"Install the KubeRay operator {plan.version}"
    if plan.what == "upgrade" and plan.there and plan.there.version == plan.version:
        return f"Install the KubeRay operator {plan.version} anew"
    if plan.what == "upgrade" and plan.there:
        return f"Upgrade the KubeRay operator from {plan.there.version} to {plan.version}"
    return "Check the KubeRay operator"


def _has_all(kuberay: Kuberay) -> bool:
    """Say whether the CRD that is applied last is there, of this KubeRay or a newer one."""
    crd = kuberay.kube.get(CRD, definitions.RAY_CLUSTERS)
    return crd is not None and definitions.fits(crd) and definitions.is_of(crd, kuberay.version)


def _crds(kuberay: Kuberay) -> list[tuple[str, Object | None, Object]]:
    """Return the name of each CRD of the chart, what there is of it, and the chart's; that of RayClusters last."""
    ours = sorted(kuberay.crds(), key=lambda one: one["metadata"]["name"] == definitions.RAY_CLUSTERS)
    there = side_by_side(lambda one: kuberay.kube.get(CRD, one["metadata"]["name"]), ours)
    return [(one["metadata"]["name"], crd, one) for one, crd in zip(ours, there, strict=True)]


def _is_new(crd: Object | None) -> bool:
    """Say whether a CRD is made by us: now, or by a command of ours that was killed meanwhile."""
    return crd is None or (crd["metadata"].get("labels") or {}).get(names.MADE_BY) == names.US


def _is_installed(kuberay: Kuberay) -> bool:
    release = kuberay.helm.release(kuberay.section.release, kuberay.section.namespace)
    wanted = installing.description(kuberay.section, kuberay.version)
    return release is not None and release.status == "deployed" and release.description == wanted


def _install(kuberay: Kuberay) -> None:
    section = kuberay.section
    _make_namespace(kuberay.kube, section.namespace)
    _recover(kuberay)
    try:
        _helm_install(kuberay)
    except OutsideError as error:
        _refuse_foreign(kuberay)
        if _HALF_REMOVED in str(error):
            kuberay.helm.uninstall(section.release, section.namespace)
            _helm_install(kuberay)
        elif not _is_installed(kuberay):
            # Unless somebody else did it in the same moment.
            raise


def _helm_install(kuberay: Kuberay) -> None:
    section = kuberay.section
    said = installing.description(section, kuberay.version)
    kuberay.helm.install(section.release, kuberay.chart, section.namespace, section.values, description=said)


def _recover(kuberay: Kuberay) -> None:
    """Wait for a Helm that is at work; put right what one of ours left behind that was killed."""
    section = kuberay.section
    for _ in range(round(PENDING_SECONDS)):
        release = kuberay.helm.release(section.release, section.namespace)
        if release is None or not release.status.startswith(installing.PENDING):
            _refuse_foreign(kuberay)
            return
        kuberay.sleep(1.0)
    _refuse_foreign(kuberay)
    kuberay.helm.recover(section.release, section.namespace)


def _refuse_foreign(kuberay: Kuberay) -> None:
    section = kuberay.section
    installing.refuse_foreign(kuberay.kube, kuberay.helm, HelmRelease(section.release, section.namespace))


def _make_namespace(kube: Kube, name: str) -> None:
    if kube.get(NAMESPACE, name):
        return
    document = {
        "apiVersion": NAMESPACE.api,
        "kind": NAMESPACE.name,
        "metadata": {"name": name, "labels": {names.MADE_BY: names.US}},
    }
    try:
        kube.create(NAMESPACE, document)
    except ConflictError:
        return
