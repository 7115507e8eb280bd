"""Ray's settings of a group: resources, labels, `ray start` parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, Strict, WithJsonSchema

from trainyard.spec.fields import Complaint, matching, rule
from trainyard.wording import did_you_mean

RESOURCE_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:/-]{0,99}$"
_LABEL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}"
# Ray's own resources, and their keys in files.
_RAYS = {"CPU": "cpus", "GPU": "gpus", "memory": "memory", "object_store_memory": "memory"}
_OUR_LABELS = ("ray.io/node-group", "ray.io/node-id")
# Parameters of `ray start` (ray/scripts/scripts.py) that Trainyard sets, and what determines each.
MADE_FROM: Mapping[str, str] = {
    "address": "the head",
    "autoscaling-config": "min and max of the groups",
    "block": "the backend",
    "dashboard-agent-listen-port": "the backend, which asks for the node's health there",
    "dashboard-host": "the backend",
    "dashboard-port": "the backend",
    "disable-usage-stats": "the backend",
    "head": "the head",
    "include-dashboard": "the backend",
    "labels": "labels",
    "labels-file": "labels",
    "memory": "memory",
    "no-monitor": "the backend",
    "node-name": "the group's name",
    "num-cpus": "cpus",
    "num-gpus": "gpus",
    "object-store-memory": "memory, and shm_size of the backend",
    "port": "the backend",
    "resources": "resources",
    "temp-dir": "the backend",
}
_FLAGS = (
    "enable-object-reconstruction",
    "enable-resource-isolation",
    "no-redirect-output",
    "ray-debugger-external",
)
_PARAMETERS = (
    "cgroup-path",
    "dashboard-agent-grpc-port",
    "log-color",
    "log-style",
    "max-worker-port",
    "metrics-export-port",
    "min-worker-port",
    "node-ip-address",
    "node-manager-port",
    "object-manager-port",
    "object-spilling-directory",
    "plasma-directory",
    "proxy-server-url",
    "ray-client-server-port",
    "runtime-env-agent-port",
    "system-config",
    "system-reserved-cpu",
    "system-reserved-memory",
    "tracing-startup-hook",
    "worker-port-list",
)


def not_rays(names: Mapping[str, object]) -> Iterator[Complaint]:
    for name in names:
        if name in _RAYS:
            yield Complaint((name,), f"is Ray's own: write {_RAYS[name]}")


def _our_labels(labels: Mapping[str, str]) -> Iterator[Complaint]:
    for key in labels:
        if key in _OUR_LABELS:
            yield Complaint((key,), "is set by Trainyard or Ray")


def _start_complaints(parameters: Mapping[str, object]) -> Iterator[Complaint]:
    for name, value in parameters.items():
        if name in MADE_FROM:
            yield Complaint((name,), f"cannot be given: it follows from {MADE_FROM[name]}")
        elif name in _FLAGS and value is not True:
            yield Complaint((name,), "is a flag: write true, or leave it out", value)
        elif name in _PARAMETERS and isinstance(value, bool):
            yield Complaint((name,), "needs a value", value)
        elif name not in (*_FLAGS, *_PARAMETERS):
            known = (*_FLAGS, *_PARAMETERS)
            yield Complaint(
                (name,),
                f"is not a parameter of `ray start` that can be given{did_you_mean(name, known)}",
            )


ResourceName = Annotated[
    str,
    matching(
        RESOURCE_PATTERN[1:-1],
        "must be the name of a Ray resource: letters, digits and any of _ . : / -",
    ),
    WithJsonSchema({"type": "string", "pattern": RESOURCE_PATTERN}),
]
LabelKey = Annotated[
    str,
    matching(_LABEL_KEY, "must be a label's key such as zone or team/zone"),
    WithJsonSchema({"type": "string", "pattern": f"^{_LABEL_KEY}$"}),
]
LabelValue = Annotated[
    str,
    matching(_LABEL_NAME, "must be a label's value: at most 63 letters, digits and any of _ . -"),
    WithJsonSchema({"type": "string", "pattern": f"^{_LABEL_NAME}$"}),
]
# Ray's autoscaler takes whole numbers only (ray/autoscaler/ray-schema.json).
NodeResources = Annotated[
    dict[ResourceName, Annotated[int, Field(ge=1, le=1_000_000)]], rule(not_rays)
]
NodeLabels = Annotated[dict[LabelKey, LabelValue], rule(_our_labels)]
# Strict, because pydantic would otherwise convert values, such as true to 1.
_Value = (
    Annotated[bool, Strict()]
    | Annotated[int, Strict()]
    | Annotated[float, Strict()]
    | Annotated[str, Strict()]
)
RayStart = Annotated[dict[str, _Value], rule(_start_complaints)]

RESOURCES_TEXT = (
    "Ray's custom resources of each node, such as {A100: 2}; a task asks for them "
    "by resources.custom."
)
LABELS_TEXT = "Ray's labels of each node, for label_selector of programs that use Ray."
RAY_START_TEXT = "More parameters of `ray start`, such as {metrics-export-port: 8080}."
IMAGE_TEXT = "The image of these nodes, instead of the cluster's; with the same Ray and Python."


def may_be_given(name: str) -> bool:
    """Say whether a cluster file may give this `ray start` parameter."""
    return name in _FLAGS or name in _PARAMETERS


def start_options(parameters: Mapping[str, object]) -> dict[str, str | None]:
    """Return `ray start` options as text; a flag's value is None."""
    options: dict[str, str | None] = {}
    for name, value in parameters.items():
        if value is True:
            options[name] = None
        else:
            options[name] = str(value)
    return options
