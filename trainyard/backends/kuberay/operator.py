"""The KubeRay operator: used where there is one, installed by Helm where there is none, its CRDs first."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainyard import versions
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import diagnosis, naming, objects, pods, snapshot
from trainyard.backends.kuberay.debounce import Debounce
from trainyard.backends.kuberay.location import Location, kubeconfig
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.helm import Chart, Helm, Release
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import CRD, DEPLOYMENT, NAMESPACE, POD, RAY_CLUSTER, Object
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import YES, Answer, Step, no

# The chart's label (helm-chart/kuberay-operator/templates/deployment.yaml); config/manager/manager.yaml has it too.
LABELLED = "app.kubernetes.io/name=kuberay-operator"
RAY_CLUSTERS = "rayclusters.ray.io"
# How Helm releases of ours describe themselves. A Helm that was killed, or that failed, has written its own words.
BY_US = "by trainyard"
_UNFINISHED = ("pending-", "failed")
# Without --wait, Helm takes seconds: a release that is pending for longer was left by a command that was killed.
PENDING_SECONDS = 15
# The operator's image is some 60 MB, and may come from far away.
AVAILABLE_SECONDS = 300.0
_IMAGE = re.compile(r"(?:^|/)(?:kuberay/operator|kuberay-operator)(?=[:@]|$)")
# How the operator is told its namespaces (ray-operator/main.go).
_WATCHES = re.compile(r"^-+watch-namespace(?:=(?P<names>.*))?$")


@dataclass(frozen=True)
class Operator:
    """An operator's Deployment. `version` is () where its image does not say; no `watches` are all namespaces."""

    name: str
    namespace: str
    version: tuple[int, ...]
    watches: tuple[str, ...]
    available: bool
    deployment: Object

    def is_for(self, namespace: str) -> bool:
        return not self.watches or namespace in self.watches


@dataclass(frozen=True)
class Kuberay:
    """KubeRay on one Kubernetes when the command began. `serves`: RayClusters are known.

    `operators` is None where the user may not look for them; `release` is the Helm release that we made, or began to.
    """

    location: Location
    helm: Helm
    chart: Chart
    serves: bool
    operators: tuple[Operator, ...] | None
    release: Release | None

    @property
    def section(self) -> Section:
        return self.location.section.operator

    @property
    def must_install(self) -> bool:
        """Say whether there is none, or Helm was killed while it installed ours."""
        is_half_made = self.release is not None and self.release.status.startswith(_UNFINISHED)
        return self.operators == () or (self.operators is not None and is_half_made)


def read(location: Location, tools: Tools) -> Kuberay:
    """Ask what there is. Raises PrerequisiteError where KubeRay is lacking, or too old, and not ours to install."""
    kube, section = location.kube, location.section.operator
    helm = helm_of(location, tools)
    is_path = section.chart.startswith((".", "/", "~")) or section.chart.endswith(".tgz")
    chart = Chart(section.chart, repository=section.repository, version=section.version)
    if is_path:
        chart = Chart(str(tools.directory / section.chart.replace("~", tools.environ.get("HOME", "~"), 1)))
    operators = find(kube, section.namespace, location.namespace)
    try:
        release = release_of_ours(helm, kube, section)
    except (OutsideError, PrerequisiteError):
        # Who has no Helm, or may not see releases, did not make one.
        release = None
    found = Kuberay(location, helm, chart, kube.serves(RAY_CLUSTER), operators, release)
    operator = for_namespace(operators or (), location.namespace)
    if operator is None:
        _refuse_missing(found)
    elif operator.version and operator.version < _numbers(versions.OLDEST_KUBERAY):
        raise PrerequisiteError(
            f"the KubeRay operator that is there is {_shown(operator.version)}; clusters with a token need "
            f"{versions.OLDEST_KUBERAY} or newer",
            where=f"deployment {operator.name}, namespace {operator.namespace}",
            hint="Trainyard replaces no operator, as other clusters depend on it. Have it upgraded, its CRDs first, "
            f"for example to {versions.KUBERAY}: {how_to_apply(section)}",
        )
    return found


def steps(kuberay: Kuberay) -> list[Step]:
    """Return the steps that bring KubeRay, or see that the one that is there runs."""
    found = [_crds_step(kuberay)] if kuberay.must_install or not kuberay.serves else []
    if kuberay.operators is not None:
        found.append(_operator_step(kuberay, after=found[0].title if found else None))
    return found


def helm_of(location: Location, tools: Tools) -> Helm:
    return Helm(tools.environ, kubeconfig(tools, location.section), location.kube.context or None)


def how_to_apply(section: Section) -> str:
    """Return how somebody brings CRDs up to a KubeRay: Helm installs them once, and never upgrades them."""
    return f"helm show crds {section.chart} | kubectl apply --server-side --force-conflicts -f -"


def find(kube: Kube, *namespaces: str) -> tuple[Operator, ...] | None:
    """Return every operator; None if the user may not look for one everywhere and finds none in these namespaces."""
    everywhere = if_allowed(lambda: kube.list(DEPLOYMENT, labels=LABELLED) or kube.list(DEPLOYMENT))
    if everywhere.found is not None:
        return tuple(_operators(everywhere.found))
    near = (if_allowed(partial(kube.list, DEPLOYMENT, namespace=space)).found for space in set(namespaces))
    return tuple(operator for found in near for operator in _operators(found or ())) or None


def for_namespace(operators: tuple[Operator, ...], namespace: str) -> Operator | None:
    """Return the operator that looks after a namespace; of several, one that is available, and the newest.

    Raises PrerequisiteError if there are operators, and none of them does: a second one is not ours to install.
    """
    fitting = [operator for operator in operators if operator.is_for(namespace)]
    if fitting or not operators:
        return max(fitting, key=lambda operator: (operator.available, operator.version), default=None)
    only = operators[0]
    raise PrerequisiteError(
        f"the KubeRay operator that is there does not look after namespace {namespace}, only after "
        f"{', '.join(only.watches)}",
        where=f"deployment {only.name}, namespace {only.namespace}",
        hint=f"Use such a namespace (`kuberay: {{namespace: {only.watches[0]}}}`), or have {namespace} added to the "
        "operator's watchNamespace.",
    )


def release_of_ours(helm: Helm, kube: Kube, section: Section) -> Release | None:
    """Return the operator's Helm release if we installed it, or began to: then its namespace says so."""
    release = helm.release(section.release, section.namespace)
    if release is None or release.description.startswith(BY_US):
        return release
    is_ours = release.status.startswith(_UNFINISHED) and made_by_us(kube, section.namespace)
    return release if is_ours else None


def made_by_us(kube: Kube, namespace: str) -> bool:
    found = if_allowed(lambda: kube.get(NAMESPACE, namespace)).found or {"metadata": {}}
    return bool((found["metadata"].get("labels") or {}).get(naming.MADE_BY) == naming.US)


def _refuse_missing(kuberay: Kuberay) -> None:
    if kuberay.operators is None:
        if kuberay.serves:
            return
        raise PrerequisiteError(
            "this Kubernetes does not know what a RayCluster is, and you may not see whether KubeRay's operator is "
            "there",
            hint="Ask whoever runs it for the KubeRay operator with its CRDs, "
            f"{versions.OLDEST_KUBERAY} or newer; or run cluster.up once with the rights to install it.",
        )
    if not kuberay.section.install:
        raise PrerequisiteError(
            "there is no KubeRay operator, and the cluster file says that somebody else installs it",
            where="kuberay.operator.install: false",
            hint=f"Have {versions.OLDEST_KUBERAY} or newer installed; or leave `install` out, and cluster.up does it.",
        )


def _crds_step(kuberay: Kuberay) -> Step:
    """Return the step after which Kubernetes serves what the chart defines; what fits already is left alone.

    The CRD of RayClusters comes last: once it fits, so do the others, and the chart need not be read.
    """
    kube, version = kuberay.location.kube, kuberay.chart.version

    def done() -> Answer:
        if not kube.serves(RAY_CLUSTER):
            return no("RayClusters are not served yet")
        crd = kube.get(CRD, RAY_CLUSTERS)
        return YES if crd and _fits(crd) else no("they are those of an older KubeRay")

    def apply() -> None:
        crds = kuberay.helm.crds(kuberay.chart)
        for crd in sorted(crds, key=lambda crd: crd["metadata"]["name"] == RAY_CLUSTERS):
            there = kube.get(CRD, crd["metadata"]["name"])
            labels = dict(crd["metadata"].get("labels") or {})
            if there is None or (there["metadata"].get("labels") or {}).get(naming.MADE_BY) == naming.US:
                labels[naming.MADE_BY] = naming.US
            crd["metadata"] = {**crd["metadata"], "labels": labels, "creationTimestamp": None}
            kube.apply(CRD, {key: value for key, value in crd.items() if key != "status"})

    return Step(f"Apply KubeRay's CRDs{f' ({version})' if version else ''}", done, apply)


def _fits(crd: Object) -> bool:
    """Say whether a CRD of RayClusters is served, and has the field that came with KubeRay 1.5, for tokens."""
    served = [each for each in crd["spec"]["versions"] if each["name"] == "v1" and each.get("served")]
    if not served or pods.condition(crd, "Established").get("status") != "True":
        return False
    schema = (served[0].get("schema") or {}).get("openAPIV3Schema") or {}
    return "authOptions" in ((schema.get("properties") or {}).get("spec") or {}).get("properties", {})


def _operator_step(kuberay: Kuberay, *, after: str | None) -> Step:
    """Return the step after which an operator looks after the namespace."""
    kube, section, namespace = kuberay.location.kube, kuberay.section, kuberay.location.namespace
    debounce = Debounce()

    def done() -> Answer:
        if kuberay.must_install:
            release = kuberay.helm.release(section.release, section.namespace)
            if release is None or release.status != "deployed":
                return no("it is not installed")
        operator = for_namespace(find(kube, section.namespace, namespace) or (), namespace)
        if operator is None:
            return no("it is not there")
        if not operator.available:
            _refuse_broken(kube, operator, debounce)
            return no("it does not run yet")
        return YES

    title = f"Install the KubeRay operator {kuberay.chart.version or ''}".rstrip()
    return Step(
        title if kuberay.must_install else "Check the KubeRay operator",
        done,
        lambda: _install(kuberay) if kuberay.must_install else None,
        deadline=AVAILABLE_SECONDS,
        every=0.5,
        after=after,
    )


def _refuse_broken(kube: Kube, operator: Operator, debounce: Debounce) -> None:
    """Raise the error that says why an operator has no pod that is ready, once that has lasted."""
    labels = (operator.deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    # Whoever may see the Deployment need not be allowed to see its pods.
    found = if_allowed(lambda: kube.list(POD, namespace=operator.namespace, labels=selector)).found or []
    observed = snapshot.of_pods(kube, operator.namespace, found, owner=operator.deployment, name=pods.name)
    expired = debounce.expired(diagnosis.of_deployment(observed))
    if expired:
        raise diagnosis.to_error(expired, f"the KubeRay operator, namespace {operator.namespace}")


def _install(kuberay: Kuberay) -> None:
    section, helm, kube = kuberay.section, kuberay.helm, kuberay.location.kube
    _recover(kuberay)
    metadata = {"name": section.namespace, "labels": {naming.MADE_BY: naming.US}}
    if kube.get(NAMESPACE, section.namespace) is None:
        objects.make(kuberay.location, NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    helm.install(
        section.release, kuberay.chart, section.namespace, section.values, description=f"{BY_US}: {section.version}"
    )


def _recover(kuberay: Kuberay) -> None:
    """Put right what a killed Helm of ours left behind. Raises PrerequisiteError for somebody else's release."""
    section, helm = kuberay.section, kuberay.helm
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
            f"there is a Helm release {section.release} in namespace {section.namespace} that Trainyard did not make",
            where=f"its status is {release.status}; {release.description}".rstrip("; "),
            hint="If its operator runs by now, repeat the command, and it is used. If nobody needs that release: "
            f"helm uninstall {section.release} -n {section.namespace}. Or name another one: kuberay.operator.release.",
        )
    if release.status.startswith("pending-"):
        helm.recover(section.release, section.namespace)


def _operators(deployments: Any) -> Iterator[Operator]:
    for found in deployments:
        containers = found["spec"]["template"]["spec"].get("containers") or ()
        named = [each for each in containers if _IMAGE.search(each.get("image") or "")]
        label, _, value = LABELLED.partition("=")
        if not named and (found["metadata"].get("labels") or {}).get(label) != value:
            continue
        metadata = found["metadata"]
        is_observed = int((found.get("status") or {}).get("observedGeneration") or 0) >= int(metadata["generation"])
        container = next(iter(named or containers))
        yield Operator(
            name=metadata["name"],
            namespace=metadata["namespace"],
            version=_numbers((container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[2]),
            watches=tuple(_watches(container)),
            available=is_observed and pods.condition(found, "Available").get("status") == "True",
            deployment=found,
        )


def _watches(container: Mapping[str, Any]) -> Iterator[str]:
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        match = _WATCHES.match(word)
        if match:
            listed = (match["names"] or following).strip("\"'")
            yield from (name.strip() for name in listed.split(",") if name.strip())


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, () if it has none: v1.5.1-rc.0 is (1, 5, 1)."""
    match = re.match(r"v?(?P<numbers>\d+(?:\.\d+)+)", version)
    return tuple(int(number) for number in match["numbers"].split(".")) if match else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
