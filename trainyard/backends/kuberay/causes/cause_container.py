"""Why a container does not start, or does not stay; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause_image, event
from trainyard.backends.kuberay.causes.facts import Cause, Facts
from trainyard.backends.kuberay.pod import Container, Ended, Pod
from trainyard.errors import PrerequisiteError

OUT_OF_MEMORY = "OOMKilled"
# What it was not given: a Secret may be made a moment later, and the kubelet looks again every few seconds.
_CONFIG = ("CreateContainerConfigError", "PreCreateHookError")
_START = ("CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun", "PostStartHookError")
CONFIG_SECONDS = 4.0
START_SECONDS = 2.0
# The first end may be chance; the kubelet starts it again at once.
TRIES = 2
TAIL_LINES = 12
LINE_LENGTH = 300
MORE_MEMORY = "Give it more `memory` in the cluster file: Ray alone takes about 1GiB, a head more."
RAY_IN_IMAGE = "Is Ray in the image, and does it work there? `invoke image.lint` says."

_MISSING = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.IGNORECASE)
_NO_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)")
_ROOT = re.compile(r"runAsNonRoot and image will run as root|has non-numeric user \((?P<user>[^)]*)\)")
_PASSES = re.compile(r"failed to sync (secret|configmap) cache|not registered")
_NO_PROGRAM = re.compile(r'exec: "(?P<program>[^"]+)": (?:stat [^:]+: )?(?:no such file|executable file not found)')
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROBE = re.compile(r"failed liveness probe")


def cause(pod: Pod, container: Container, facts: Facts, events: Sequence[event.Event]) -> Cause | None:
    """Return why a container does not run, None if nothing is wrong with it (yet)."""
    image = _image(pod, container)
    return (
        cause_image.cause(container, image, events, has_login=bool((pod.get("spec") or {}).get("imagePullSecrets")))
        or _not_given(container)
        or _not_started(container, image)
        or _out_of_memory(pod, container)
        or _crashed(pod, container, facts, events)
    )


def last_lines(text: str) -> str:
    """Return the last lines of a log, as a message shows them."""
    said = [line.rstrip() for line in _COLOURS.sub("", text).splitlines() if line.strip()][-TAIL_LINES:]
    return "\n".join(f"    {line[:LINE_LENGTH]}" for line in said or ["(it said nothing)"])


def _image(pod: Pod, container: Container) -> str:
    """Return the image that was asked for: what runs may be shown by another of its names."""
    spec = pod.get("spec") or {}
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return str(next((one["image"] for one in every if one["name"] == container.name), container.image))


def _not_given(container: Container) -> Cause | None:
    if container.waiting not in _CONFIG or _PASSES.search(container.message):
        return None
    what, hint = _lack(container.message)
    return Cause(
        what=f"cannot start: {what}",
        brief=what,
        kind=PrerequisiteError,
        hint=hint,
        said="" if container.message in what else container.message,
        patience=CONFIG_SECONDS,
    )


def _lack(said: str) -> tuple[str, str | None]:
    if found := _MISSING.search(said):
        kind = {"secret": "Secret", "configmap": "ConfigMap"}[found["kind"].lower()]
        return (
            f"there is no {kind} {found['name']}",
            "Make it, or correct the cluster file; the token's is made by cluster.up.",
        )
    if found := _NO_KEY.search(said):
        return f"the {found['kind']} {found['name'].rpartition('/')[2]} has no key {found['key']}", "Add it there."
    if _ROOT.search(said):
        return (
            "its image runs as root, or as a user without a number, and that is not allowed",
            "Name a user: `kuberay: {security: {run_as_user: 1000}}`, if the image can run as one.",
        )
    return said, None


def _not_started(container: Container, image: str) -> Cause | None:
    ended = container.failed
    reason = container.waiting or (ended.reason if ended else "")
    if container.ready or (reason not in _START and (ended is None or ended.reason not in _START)):
        return None
    said = container.message or (ended.message if ended else "")
    if container.waiting == pods.CRASH_LOOP and ended:
        said = ended.message
    program = _NO_PROGRAM.search(said)
    if program:
        what, hint = (
            f"there is no {program['program']} in the image {image}",
            "What is wrong with it: invoke image.lint",
        )
    else:
        what, hint = f"the runtime cannot run the image {image}", None
    return Cause(what=f"cannot start: {what}", brief=what, hint=hint, said=said, patience=START_SECONDS)


def _out_of_memory(pod: Pod, container: Container) -> Cause | None:
    ended = container.failed
    if ended is None or ended.reason != OUT_OF_MEMORY or container.ready:
        return None
    limit = pods.limit(pod, container.name, "memory")
    has = f"its memory of {limit}B" if limit and limit.endswith("i") else "the memory that it has"
    return Cause(
        what=f"was killed: {_whose(container, pod)} used more than {has}",
        brief=f"out of memory ({limit or 'no limit'})",
        hint=MORE_MEMORY,
    )


def _crashed(pod: Pod, container: Container, facts: Facts, events: Sequence[event.Event]) -> Cause | None:
    ended = container.ended or container.last
    if ended is None or container.ready or not _ends_for_good(pod, container):
        return None
    killed = any(event.reason(one) == "Killing" and _PROBE.search(event.message(one)) for one in events)
    # Of a container that runs again, the former run has the words.
    former = container.ended is None
    return Cause(
        what=_end(container, pod, ended, killed=killed),
        brief=f"ended with exit code {ended.code}" + (", Kubernetes starts it again and again" if former else ""),
        hint=RAY_IN_IMAGE,
        words=lambda: last_lines(ended.message or facts.words(pod, container.name, former)),
    )


def _ends_for_good(pod: Pod, container: Container) -> bool:
    """Say whether it ended and is not started again, or ended more often than chance."""
    if container.is_init and container.ended is not None and container.ended.code == 0:
        return False
    if container.waiting == pods.CRASH_LOOP or container.restarts >= TRIES:
        return True
    return container.ended is not None and pods.phase(pod) == "Failed"


def _end(container: Container, pod: Pod, ended: Ended, *, killed: bool) -> str:
    who = "" if _is_ray(container, pod) else f" in its container {container.name}"
    if killed:
        return f"was ended by Kubernetes{who}, because it did not answer (liveness probe); its last words:"
    return f"ended while it was starting{who} (exit code {ended.code}); its last words:"


def _whose(container: Container, pod: Pod) -> str:
    return "it" if _is_ray(container, pod) else f"its container {container.name}"


def _is_ray(container: Container, pod: Pod) -> bool:
    ray = pods.ray(pod)
    return ray is not None and ray.name == container.name
