"""The KubeRay operators of a Kubernetes: where each is, how old, and which namespaces it watches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard import versions
from trainyard.backends.kuberay import pods as pod
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import DEPLOYMENT, Object

# The chart's label (helm-chart/kuberay-operator/templates/deployment.yaml); config/manager/manager.yaml has it too.
LABELLED = "app.kubernetes.io/name=kuberay-operator"
_IMAGE = re.compile(r"(?:^|/)(?:kuberay/operator|kuberay-operator)(?=[:@]|$)")
_RELEASE = "meta.helm.sh/release-name"
_RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
# How the operator is told its namespaces (ray-operator/main.go).
_WATCH = "watch-namespace"


@dataclass(frozen=True)
class HelmRelease:
    """What Helm calls something that it installed."""

    name: str
    namespace: str


@dataclass(frozen=True)
class Operator:
    """An operator's Deployment. `version` is None where its image does not say; no `watches` are all namespaces."""

    name: str
    namespace: str
    version: str | None
    watches: tuple[str, ...]
    available: bool
    release: HelmRelease | None
    deployment: Object

    @property
    def where(self) -> str:
        """Return what an error names it by."""
        return f"deployment {self.name}, namespace {self.namespace}"

    def is_for(self, namespace: str) -> bool:
        """Say whether it looks after RayClusters of a namespace."""
        return not self.watches or namespace in self.watches


def find(kube: Kube, *namespaces: str) -> tuple[Operator, ...] | None:
    """Return every operator; None if the user may not look for one everywhere and finds none in these namespaces."""
    try:
        found = kube.list(DEPLOYMENT, labels=LABELLED) or [one for one in kube.list(DEPLOYMENT) if _is_operator(one)]
        return tuple(of_deployment(one) for one in found)
    except ForbiddenError:
        near = [of_deployment(one) for namespace in dict.fromkeys(namespaces) for one in _near(kube, namespace)]
        return tuple(near) or None


def of_deployment(found: Object) -> Operator:
    """Return what a Deployment says about the operator in it."""
    metadata = found["metadata"]
    return Operator(
        name=metadata["name"],
        namespace=metadata["namespace"],
        version=_version(found),
        watches=tuple(_watches(_container(found))),
        available=pod.condition(found, "Available").get("status") == "True" and _is_observed(found),
        release=_release(metadata.get("annotations") or {}, metadata["namespace"]),
        deployment=found,
    )


def for_namespace(found: Sequence[Operator], namespace: str) -> Operator | None:
    """Return the operator that looks after a namespace; of several, one that is available, and the newest.

    Raises PrerequisiteError if there are operators, and none of them does: a second one is not ours to install.
    """
    fitting = [one for one in found if one.is_for(namespace)]
    if fitting:
        return max(fitting, key=lambda one: (one.available, numbers(one.version)))
    if not found:
        return None
    only = found[0]
    raise PrerequisiteError(
        f"the KubeRay operator that is there does not look after namespace {namespace}, only after "
        f"{', '.join(only.watches)}",
        where=only.where,
        hint=f"Use such a namespace (`kuberay: {{namespace: {only.watches[0]}}}`), or have {namespace} added to the "
        "operator's watchNamespace.",
    )


def refuse_old(operator: Operator) -> None:
    """Raise PrerequisiteError for an operator without what our clusters need; one of unknown version may have it."""
    if operator.version is None or not is_older(operator.version, versions.OLDEST_KUBERAY):
        return
    raise PrerequisiteError(
        f"the KubeRay operator that is there is {operator.version}; clusters with a token need "
        f"{versions.OLDEST_KUBERAY} or newer",
        where=operator.where,
        hint="Trainyard replaces no operator that it did not install, as other clusters depend on it. "
        f"Have it upgraded, its CRDs first, for example to {versions.KUBERAY}.",
    )


def is_older(version: str, than: str) -> bool:
    """Say whether a version comes before another one."""
    return numbers(version) < numbers(than)


def numbers(version: str | None) -> tuple[int, ...]:
    """Return the numbers of a version, () if it has none: v1.5.1-rc.0 is (1, 5, 1)."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(one) for one in found[1].split(".")) if found else ()


def _near(kube: Kube, namespace: str) -> list[Object]:
    try:
        return [one for one in kube.list(DEPLOYMENT, namespace=namespace) if _is_operator(one)]
    except ForbiddenError:
        return []


def _is_operator(found: Object) -> bool:
    name, _, value = LABELLED.partition("=")
    labelled = (found["metadata"].get("labels") or {}).get(name) == value
    return labelled or any(_IMAGE.search(one.get("image") or "") for one in _containers(found))


def _containers(found: Object) -> list[dict[str, Any]]:
    return list(found["spec"]["template"]["spec"].get("containers") or ())


def _container(found: Object) -> Mapping[str, Any]:
    """Return the operator's own container: others may stand beside it."""
    every = _containers(found)
    return next((one for one in every if _IMAGE.search(one.get("image") or "")), every[0] if every else {})


def _version(found: Object) -> str | None:
    """Return the version that the image's tag says, else the chart's label."""
    tag = (_container(found).get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[2]
    labels = found["metadata"].get("labels") or {}
    chart = re.search(r"-v?(\d+\.\d+.*)$", labels.get("helm.sh/chart") or "")
    for said in (tag, labels.get("app.kubernetes.io/version") or "", chart[1] if chart else ""):
        if len(numbers(said)) > 1:
            return str(said).removeprefix("v")
    return None


def _watches(container: Mapping[str, Any]) -> Iterator[str]:
    words = [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]
    for index, word in enumerate(words):
        name, is_given, value = word.lstrip("-").partition("=")
        if name == _WATCH and word.startswith("-"):
            said = value if is_given else "".join(words[index + 1 : index + 2])
            yield from (one.strip() for one in said.strip("\"'").split(",") if one.strip())


def _release(annotations: Mapping[str, str], namespace: str) -> HelmRelease | None:
    name = annotations.get(_RELEASE)
    return HelmRelease(name, annotations.get(_RELEASE_NAMESPACE) or namespace) if name else None


def _is_observed(found: Object) -> bool:
    """Say whether the conditions are about the Deployment as it is now."""
    return int((found.get("status") or {}).get("observedGeneration") or 0) >= int(found["metadata"]["generation"])


def releases(found: Iterable[Operator]) -> tuple[HelmRelease, ...]:
    """Return the Helm releases of operators."""
    return tuple(dict.fromkeys(one.release for one in found if one.release))
