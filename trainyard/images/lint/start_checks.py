"""Checks of how an image starts: its name, its entry point, its shell, its user."""

from __future__ import annotations

import re

from trainyard.images.lint.report import Finding, failed, ok, untested
from trainyard.images.lint.seen import Seen

# The grammar of distribution/reference: only the registry's host and the tag may have capitals.
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")

# Whoever builds for other machines has asked for this platform: it is the look at the image that cannot be had here.
_OTHER_MACHINE = (
    "Meant for other machines, it can be pushed without being run here: invoke image.push --skip-lint. Install QEMU "
    "(qemu-user-static, binfmt) to run it here all the same, or build it for this machine: leave out --platform."
)


def reference(text: str) -> Finding:
    """Look at the name by which registries will know the image."""
    problem = _reference_problem(text)
    if problem is None:
        return ok("reference", text)
    return failed("reference", problem, f"Name it in lower case, such as {_lower(text)}.")


def platform(seen: Seen) -> Finding:
    """Look whether this engine can run what the image was built for."""
    if "exec format error" in seen.probed.refusal:
        detail = f"is for {seen.image.platform}, which this engine cannot run: exec format error"
        return failed("platform", detail, _OTHER_MACHINE)
    return ok("platform", seen.image.platform)


def entrypoint(seen: Seen) -> Finding:
    """Look whether a command given to the image is what runs."""
    words = " ".join(seen.image.entrypoint or ())
    if not words:
        return ok("entrypoint", "none: commands run as they are given")
    if seen.probed.came_through:
        return ok("entrypoint", f"{words}: hands commands on")
    detail = f"ENTRYPOINT {words} swallows the command that it is given, such as `ray start`"
    return failed("entrypoint", detail, 'Reset it in the Dockerfile: ENTRYPOINT [], or let it end with: exec "$@"')


def bash(seen: Seen) -> Finding:
    """Look for /bin/bash, with which KubeRay and Ray's autoscaler start nodes."""
    if not seen.probed.began:
        detail = f"no shell at all can be run: {seen.probed.refusal}"
        return failed("bash", detail, "Install bash: KubeRay and Ray's autoscaler start every node with /bin/bash.")
    if seen.probed.text("bash"):
        return ok("bash", "/bin/bash")
    return failed("bash", "there is no /bin/bash", "Install bash: KubeRay and Ray's autoscaler start nodes with it.")


def user(seen: Seen) -> Finding:
    """Look whom the image runs as, where its programs mind."""
    wanted = seen.file.user if seen.file else "any"
    is_root = seen.probed.text("uid") == "0"
    if wanted == "non-root" and is_root:
        detail = "runs as root, and image.yaml says non-root: its programs refuse to run as root"
        return failed("user", detail, "Let the Dockerfile end with a USER that it made: RUN useradd ..., USER ...")
    if wanted == "root" and not is_root:
        detail = f"runs as {seen.user}, and image.yaml says root"
        return failed("user", detail, "Let the Dockerfile end with: USER root")
    return ok("user", seen.user)


def writable(seen: Seen) -> Finding:
    """Look whether Ray can write where it keeps its sessions."""
    if seen.probed.text("writable:/tmp"):
        return ok("writable", "/tmp")  # noqa: S108 - the image's, not ours
    detail = f"{seen.user} cannot write to /tmp, where Ray keeps its sessions"
    return failed("writable", detail, "Give /tmp back its mode: RUN chmod 1777 /tmp")


def wget(seen: Seen) -> Finding:
    """Look for wget, with which KubeRay before 1.6 probes its nodes.

    KubeRay 1.6 probes Ray 2.53 and newer by HTTP (ray-project/kuberay#4448).
    """
    if seen.probed.text("wget"):
        return ok("wget", seen.probed.text("wget"))
    if _probed_by_http(seen.ray_version) and (seen.file is None or not seen.lint.wget):
        return ok("wget", f"none: KubeRay 1.6 and newer probes Ray {seen.ray_version} by HTTP, older ones cannot")
    hint = "Install wget, or say `wget: false` in image.yaml if only KubeRay 1.6 and newer runs it."
    if not _probed_by_http(seen.ray_version):
        hint = "Install wget."
    return failed("wget", "there is no wget, with which KubeRay probes its nodes: it would end them", hint)


def no_shell(check: str) -> Finding:
    """Return that a check needs a shell in the image."""
    return untested(check, "the image can run nothing")


def _probed_by_http(ray_version: str) -> bool:
    numbers = [int(part) for part in re.findall(r"\d+", ray_version)[:2]]
    return numbers >= [2, 53]


def _reference_problem(text: str) -> str | None:
    if _DIGEST.fullmatch(text):
        return None
    name, at, digest = text.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        head, tag = name, "latest"
    host, slash, path = head.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        head = path
    if not _NAME.fullmatch(head):
        letters = "".join(sorted({letter for letter in head if letter.isupper()}))
        return f"{text} has capital letters ({letters}); no registry takes them" if letters else f"{text} is no name"
    if not _TAG.fullmatch(tag) or (at and not _DIGEST.fullmatch(digest)):
        return f"{text} has an illegal tag or digest"
    return None


def _lower(text: str) -> str:
    """Return the name as it would be legal; a tag keeps its capitals."""
    head, colon, tag = text.partition("@")[0].rpartition(":")
    return f"{head.lower()}:{tag}" if colon and "/" not in tag else text.lower()
