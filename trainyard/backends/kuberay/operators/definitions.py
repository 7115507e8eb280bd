"""KubeRay's CRDs: what Kubernetes knows of a RayCluster, compared with what a chart brings; pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay import pods as pod
from trainyard.backends.kuberay.operators.operator import is_older
from trainyard.seams.kube.types import Object

RAY_CLUSTERS = "rayclusters.ray.io"
VERSION = "v1"
# Which KubeRay a CRD is of: it does not say so itself.
FROM = "io.trainyard/kuberay-version"
# A field that came with KubeRay 1.5, and that our clusters need.
_NEEDED = ("spec", "authOptions")


def fits(crd: Object) -> bool:
    """Say whether the CRD of RayClusters is in use, and has what our clusters need."""
    return is_served(crd) and _NEEDED in set(paths(crd))


def is_served(crd: Object) -> bool:
    """Say whether the API answers for a CRD, in the version that we speak."""
    established = pod.condition(crd, "Established").get("status") == "True"
    return established and any(one["name"] == VERSION and one.get("served") for one in crd["spec"]["versions"])


def is_as_new(there: Object, ours: Object, *, version: str) -> bool:
    """Say whether a CRD that is there has all that ours has: it is never replaced by an older one.

    One that somebody else put there does not say how old it is; one with fields that ours has not is newer.
    """
    if (there["metadata"].get("annotations") or {}).get(FROM):
        return is_of(there, version)
    has, brings = set(paths(there)), set(paths(ours))
    if _NEEDED in brings - has:
        return False
    return has >= brings or bool(has - brings)


def is_of(crd: Object, version: str) -> bool:
    """Say whether we marked a CRD as one of this KubeRay, or of a newer one."""
    said = (crd["metadata"].get("annotations") or {}).get(FROM)
    return bool(said and not is_older(said, version))


def to_apply(ours: Object, *, version: str, is_new: bool) -> Object:
    """Return a CRD of the chart, marked with its KubeRay; as made by us only where there was none."""
    crd = copy.deepcopy(ours)
    crd.pop("status", None)
    metadata = crd["metadata"]
    metadata.pop("creationTimestamp", None)
    metadata["annotations"] = {**(metadata.get("annotations") or {}), FROM: version}
    if is_new:
        metadata["labels"] = {**(metadata.get("labels") or {}), names.MADE_BY: names.US}
    return crd


def how_to_apply(version: str) -> str:
    """Return how somebody brings CRDs up to a KubeRay."""
    return (
        f"Have the CRDs of KubeRay {version} applied: helm show crds CHART | kubectl apply --server-side "
        "--force-conflicts -f -"
    )


def paths(crd: Object) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field that a CRD knows in the version that we speak."""
    for one in crd["spec"]["versions"]:
        if one["name"] == VERSION:
            yield from _below((one.get("schema") or {}).get("openAPIV3Schema") or {}, ())


def _below(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield (*path, name)
        yield from _below(inner, (*path, name))
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield from _below(schema[word], (*path, "*"))
