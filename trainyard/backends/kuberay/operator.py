"""Use the existing KubeRay operator, or install one with Helm, CRDs first."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from trainyard import versions
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import diagnosis, naming, objects, pods, snapshot
from trainyard.backends.kuberay.debounce import Debounce
from trainyard.backends.kuberay.location import Location, kubeconfig
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Chart, Helm, Release
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import CRD, DEPLOYMENT, NAMESPACE, POD, RAY_CLUSTER, Object
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import YES, Answer, Step, no

# The chart's label (helm-chart/kuberay-operator/templates/deployment.yaml).
LABELLED = "app.kubernetes.io/name=kuberay-operator"
RAY_CLUSTERS = "rayclusters.ray.io"
# The descriptions of Trainyard's Helm releases begin with this, but not after a failed or killed
# Helm.
BY_US = "by trainyard"
# Helm without --wait takes only seconds. A release that is pending for longer is left over.
PENDING_SECONDS = 15
# The operator's image has about 60 MB. The limit exceeds the longest tolerance (debounce.STILL), so
# that a cause is reported first.
AVAILABLE_SECONDS = 360.0
_IMAGE = re.compile(
    r"(?:^|/)(?:kuberay/operator|kuberay-operator)(?::v?(?P<version>\d+(?:\.\d+)+))?(?=[-:@]|$)"
)


@dataclass(frozen=True)
class Kuberay:
    """A Kubernetes' KubeRay when the command began, and how to install KubeRay.

    `serves`: the API server knows the kind RayCluster. `operators` are the
    operators' Deployments; None if the user may not list Deployments.
    """

    location: Location
    helm: Helm
    chart: Chart
    serves: bool
    operators: tuple[Object, ...] | None

    @property
    def section(self) -> Section:
        return self.location.section.operator


def read(location: Location, site: Site) -> Kuberay:
    """Ask Kubernetes for its KubeRay.

    Raises PrerequisiteError if KubeRay is too old, or is missing and may not be
    installed.
    """
    kube = location.kube
    section = location.section.operator
    kuberay = Kuberay(
        location=location,
        helm=helm_of(location, site),
        chart=_chart(section, site),
        serves=kube.serves(RAY_CLUSTER),
        operators=find(kube),
    )
    if not section.install and (kuberay.operators == () or not kuberay.serves):
        lacking = "KubeRay operator"
        if kuberay.operators:
            lacking = "CRD rayclusters.ray.io of KubeRay"
        raise PrerequisiteError(
            f"there is no {lacking}, and the cluster file says not to install one",
            where="kuberay.operator.install: false",
            hint=f"Have KubeRay {versions.OLDEST_KUBERAY} or newer installed; or leave `install` "
            "out, and cluster.up installs it.",
        )

    if kuberay.operators is None and not kuberay.serves:
        raise PrerequisiteError(
            "there is no KubeRay on this Kubernetes, and you may not install it",
            hint="Ask its administrator for the KubeRay operator with its CRDs, "
            f"{versions.OLDEST_KUBERAY} or newer; or run cluster.up once with the rights to "
            "install the operator.",
        )

    if kuberay.operators and all(is_old(deployment) for deployment in kuberay.operators):
        raise _too_old(kuberay.operators[0], section)

    return kuberay


def steps(kuberay: Kuberay) -> list[Step]:
    """Return the steps that install KubeRay, or check the existing operator."""
    steps: list[Step] = []
    after = None
    if not kuberay.serves:
        crds = _crds_step(kuberay)
        steps.append(crds)
        after = crds.id
    if kuberay.operators is not None:
        steps.append(_operator_step(kuberay, after=after))
    return steps


def helm_of(location: Location, site: Site) -> Helm:
    return Helm(site.environ, kubeconfig(location.kube), location.kube.context)


def how_to_apply(section: Section) -> str:
    """Return the command that upgrades KubeRay's CRDs: Helm never does that."""
    return f"helm show crds {section.chart} | kubectl apply --server-side --force-conflicts -f -"


def find(kube: Kube) -> tuple[Object, ...] | None:
    """Return the operators' Deployments in all namespaces.

    They are found by the chart's label; if none has it, by the image. Returns
    None if the user may not list Deployments.
    """
    labelled = if_allowed(kube.list, DEPLOYMENT, labels=LABELLED)
    if labelled is None:
        return None
    if labelled:
        return tuple(labelled)
    return tuple(filter(_image, kube.list(DEPLOYMENT)))


def release_of_ours(helm: Helm, kube: Kube, section: Section) -> Release | None:
    """Return the operator's Helm release if Trainyard made it, or began to.

    An incomplete release lacks Trainyard's description. It counts if its
    namespace has Trainyard's label.
    """
    release = helm.release(section.release, section.namespace)
    if release is None or release.description.startswith(BY_US):
        return release
    if release.status != "deployed" and made_by_us(kube, section.namespace):
        return release
    return None


def made_by_us(kube: Kube, namespace: str) -> bool:
    found = if_allowed(kube.get, NAMESPACE, namespace)
    return found is not None and pods.labels_of(found).get(naming.MADE_BY) == naming.US


def _chart(section: Section, site: Site) -> Chart:
    if section.chart.startswith((".", "/", "~")) or section.chart.endswith(".tgz"):
        path = section.chart
        if path.startswith("~"):
            path = site.environ.get("HOME", "~") + path[1:]
        return Chart(str(site.directory / path))
    return Chart(section.chart, repository=section.repository, version=section.version)


def _image(deployment: Object) -> re.Match[str] | None:
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        match = _IMAGE.search(container.get("image") or "")
        if match:
            return match
    return None


def is_old(deployment: Object) -> bool:
    """Say whether an operator is too old; False if its tag has no version."""
    image = _image(deployment)
    if image is None or image["version"] is None:
        return False
    return _numbers(image["version"]) < _numbers(versions.OLDEST_KUBERAY)


def _too_old(deployment: Object, section: Section) -> PrerequisiteError:
    metadata = deployment["metadata"]
    return PrerequisiteError(
        f"the existing KubeRay operator is older than {versions.OLDEST_KUBERAY}, which clusters "
        "with a token need",
        where=f"deployment {metadata['name']}, namespace {metadata['namespace']}",
        hint="Trainyard replaces no operator, as other clusters depend on it. Have it upgraded, "
        f"its CRDs first, for example to {versions.KUBERAY}: {how_to_apply(section)}",
    )


def _crds_step(kuberay: Kuberay) -> Step:
    """Return the step that applies the chart's CRDs.

    The CRD of RayClusters comes last: once it is served, so are the others.
    """
    kube = kuberay.location.kube
    version = kuberay.chart.version

    def done() -> Answer:
        if kube.serves(RAY_CLUSTER):
            return YES
        return no("RayClusters are not served yet")

    def apply() -> None:
        crds = kuberay.helm.crds(kuberay.chart)
        for crd in sorted(crds, key=lambda crd: crd["metadata"]["name"] == RAY_CLUSTERS):
            labels = {**pods.labels_of(crd), naming.MADE_BY: naming.US}
            crd["metadata"] = {**crd["metadata"], "labels": labels, "creationTimestamp": None}
            kube.apply(CRD, {key: value for key, value in crd.items() if key != "status"})

    title = "Apply KubeRay's CRDs"
    if version:
        title += f" ({version})"
    return Step("crds", title, done, apply)


def _operator_step(kuberay: Kuberay, *, after: str | None) -> Step:
    """Return the step that installs an operator if needed, and waits for it."""
    kube = kuberay.location.kube
    debounce = Debounce()

    def done() -> Answer:
        deployments = find(kube)
        if not deployments:
            return no("it is not installed")
        if any(pods.is_true(deployment, "Available") for deployment in deployments):
            return YES

        _refuse_broken(kube, deployments[0], debounce, has_run=bool(kuberay.operators))
        return no("it does not run yet")

    def install() -> None:
        if not kuberay.operators:
            _install(kuberay)

    title = f"Install the KubeRay operator {kuberay.chart.version or ''}".rstrip()
    if kuberay.operators:
        title = "Check the KubeRay operator"
    return Step(
        "operator", title, done, install, deadline=AVAILABLE_SECONDS, every=0.5, after=after
    )


def _refuse_broken(kube: Kube, deployment: Object, debounce: Debounce, *, has_run: bool) -> None:
    """Raise why the operator has no ready pod, if the cause lasts too long."""
    namespace = deployment["metadata"]["namespace"]
    # The user may read Deployments, but perhaps not pods.
    found = if_allowed(kube.list, POD, namespace=namespace, labels=LABELLED) or []
    observed = snapshot.of_pods(kube, namespace, found, owner=deployment, name=pods.name)
    expired = debounce.expired(diagnosis.of_deployment(observed, has_run=has_run))
    if expired:
        raise diagnosis.to_error(expired, f"the KubeRay operator, namespace {namespace}")


def _install(kuberay: Kuberay) -> None:
    section = kuberay.section
    helm = kuberay.helm
    kube = kuberay.location.kube
    _remove_half_made(kuberay)
    if kube.get(NAMESPACE, section.namespace) is None:
        metadata = {"name": section.namespace, "labels": {naming.MADE_BY: naming.US}}
        objects.make(kuberay.location, NAMESPACE, {"metadata": metadata})

    helm.install(
        section.release,
        kuberay.chart,
        section.namespace,
        section.values,
        description=f"{BY_US}: {section.version}",
    )


def _remove_half_made(kuberay: Kuberay) -> None:
    """Uninstall a release that a killed or failed Helm left.

    Waits while the release is pending, because another command may be at work.
    Raises PrerequisiteError for a release that Trainyard did not begin.
    """
    section = kuberay.section
    helm = kuberay.helm
    release = helm.release(section.release, section.namespace)
    for _ in range(PENDING_SECONDS):
        if release is None or not release.status.startswith("pending-"):
            break
        time.sleep(1.0)
        release = helm.release(section.release, section.namespace)

    if release is None:
        return

    if release_of_ours(helm, kuberay.location.kube, section) is None:
        raise PrerequisiteError(
            f"there is a Helm release {section.release} in namespace {section.namespace} that "
            "Trainyard did not make",
            where=f"its status is {release.status}; {release.description}".rstrip("; "),
            hint="If its operator runs by now, repeat the command: it will use that operator. If "
            f"the release is not needed: helm uninstall {section.release} -n {section.namespace}. "
            "Or set kuberay.operator.release to another name.",
        )

    if release.status != "deployed":
        helm.uninstall(section.release, section.namespace)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]
