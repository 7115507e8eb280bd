"""The tasks image.*: build, check, push, verify and list training images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.api import lazy
from trainyard.console import report
from trainyard.console.report import Report, Table, step_documents
from trainyard.results.formats import size
from trainyard.steps import PlannedStep
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.wording import counted

if TYPE_CHECKING:
    from trainyard.images.pipeline import ImageCommand, ListedImage
    from trainyard.operations.cluster import Cluster

HELP = {
    "image": "Name of a directory of images/ (default: the cluster file's `image`, else ray-cpu).",
    "base": "Build on this image instead of the one that image.yaml names.",
    "platform": "Build for nodes of another kind than the Docker host, such as linux/arm64.",
}


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "cache": "With --no-cache: run every stage again."},
)
def build(
    call: Call, image: str = "", base: str = "", platform: str = "", cache: bool = True
) -> Report:
    """Build an image, with a hash of its content as tag; quick if nothing changed."""
    with _open(call, image, base, platform) as command:
        if call.dry:
            plan = lazy.pipeline.plan_build(command, no_cache=not cache)
            return _planned(command, plan, again="image.build")
        built, results = lazy.pipeline.run_build(command, call.progress, no_cache=not cache)

    document = {
        "image": built.name,
        "reference": built.reference_local,
        "alias": built.alias_local,
        "content": built.content,
        "image_id": built.image_id,
        "platform": built.platform,
        "size": built.size,
        "steps": step_documents(results),
    }

    lines = [
        f"image {built.name} is built: {built.reference_local} ({size(built.size)}), also "
        f"{built.alias_local}"
    ]
    if base:
        lines.append(
            f"--base applies only to this build; for clusters with this base, write into their "
            f"file: build: {{base: {base}}}"
        )

    return Report(document, lines, next="trainyard image.lint")


@task(*CLUSTER, positional=["image"], help=HELP)
def lint(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Run an image once and check all that clusters need; exit 5 if a check fails."""
    with _open(call, image, base, platform) as command:
        linted = lazy.pipeline.run_lint(command, on_progress=_busy)

    rows = []
    for finding in linted.findings:
        if finding.skipped:
            result = "skipped"
        elif finding.ok:
            result = "ok"
        else:
            result = "WRONG"
        rows.append((finding.check, result, finding.detail))

    table = Table(("check", "result", "detail"), rows, title=linted.reference)
    return Report(linted.document(), [table], next="trainyard image.push", error=linted.error)


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "skip_lint": "Push the image without checking it first."},
)
def push(
    call: Call, image: str = "", base: str = "", platform: str = "", skip_lint: bool = False
) -> Report:
    """Build an image if it changed, check it, push it, and print the digest for clusters."""
    lazy.clusters.refuse_without_registry(call.cluster())
    with _open(call, image, base, platform) as command:
        if call.dry:
            plan = lazy.pipeline.plan_push(command, skip_lint=skip_lint)
            return _planned(command, plan, again="image.push")
        pushed, results = lazy.pipeline.run_push(command, call.progress, skip_lint=skip_lint)

    sent = "nothing was sent: the registry had it"
    if pushed.layers_sent:
        sent = (
            f"{counted(pushed.layers_sent, 'layer')} sent ({size(pushed.bytes_sent)}), "
            f"{pushed.layers_there} were there"
        )

    name = _name(command)
    return Report(
        {"image": name, **asdict(pushed), "steps": step_documents(results)},
        [
            f"image {name} is pushed: {pushed.reference}",
            f"also {pushed.tag} and {pushed.alias}; {sent}",
        ],
        next=f"trainyard {after_push(command.spec.backend)}",
    )


@task(*CLUSTER, dry=True, positional=["image"], help=HELP)
def verify(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Let every host of a cluster pull the pushed image and run it; exit 6 if a host fails."""
    cluster = _cluster(call, image, base, platform)
    spec = cluster.spec
    if call.dry:
        title = "Pull and run the image on every host"
        step = PlannedStep(title, "would", f"cluster {spec.name} ({spec.backend})")
        return report.planned({"cluster": spec.name}, [step])

    verified = lazy.clusters.verify(cluster, report=_busy)
    hosts = []
    rows = []
    for host in verified.hosts:
        hosts.append(
            {
                "host": host.host,
                "reference": host.reference,
                "seconds": round(host.seconds, 3),
                "result": host.result,
                "ok": host.ok,
            }
        )
        result = "ok" if host.ok else "FAILED"
        rows.append((host.host, f"{host.seconds:.1f}", result, host.result))

    body: list[str | Table] = [Table(("host", "seconds", "result", "detail"), rows)]
    if verified.remark:
        body.append(verified.remark)
    return Report(
        {"ok": verified.error is None, "hosts": hosts, "remark": verified.remark},
        body,
        next="trainyard cluster.up",
        error=verified.error,
    )


@task(*CLUSTER, dry=True, name="list")
def list_(call: Call) -> Report:
    """List the images that can be built here, and their versions in Docker."""
    with _open(call) as command:
        return listed(lazy.pipeline.listed(command), command.name)


def listed(images: Sequence[ListedImage], name: str = "") -> Report:
    """Report images and their problems; `name` is the cluster's image."""
    names = [image.name for image in images]
    if name not in names:
        name = "".join(names[:1])

    notes = []
    for image in images:
        if image.problem:
            notes.append(f"image {image.name} cannot be built: {image.problem}")

    columns = ("image", "state", "content", "size", "built", "base", "directory")
    return Report(
        {"images": [_document(image) for image in images]},
        [Table(columns, [_row(image) for image in images])],
        notes=notes,
        next=f"trainyard image.build {name}" if name else "",
    )


def after_push(backend: str) -> str:
    from trainyard import backends

    return backends.named(backend).traits.pushed_image or "cluster.up -f compose"


def _cluster(call: Call, image: str = "", base: str = "", platform: str = "") -> Cluster:
    """Return the chosen cluster with IMAGE, --base and --platform applied."""
    overrides = list(call.overrides)
    if base:
        overrides.append(f"build.base={base}")
    if platform:
        overrides.append(f"build.platform={platform}")

    cluster = replace(call, overrides=tuple(overrides)).cluster()
    if not image:
        return cluster
    # `--set image=` is not used here, because its check rejects some paths of directories.
    spec = cluster.spec.with_image(image)
    return replace(cluster, loaded=replace(cluster.loaded, spec=spec))


def _open(
    call: Call, image: str = "", base: str = "", platform: str = ""
) -> AbstractContextManager[ImageCommand]:
    loaded = _cluster(call, image, base, platform).loaded
    return lazy.pipeline.connected(loaded, os.environ, directory=Path.cwd())


def _busy(text: str) -> None:
    report.note(f"  ... {text}")


def _name(command: ImageCommand) -> str:
    if command.image:
        return command.image.name
    return command.name


def _planned(command: ImageCommand, plan: Sequence[PlannedStep], *, again: str) -> Report:
    return report.planned({"image": _name(command)}, plan, next=f"trainyard {again}")


def _row(image: ListedImage) -> tuple[str, ...]:
    current = [version for version in image.versions if version.id == image.current]
    versions = current or image.versions
    facts = ("", "", "")
    if versions:
        newest = versions[0]
        facts = (newest.content or "", size(newest.size), newest.created[:19])
    source = ("", "")
    if image.image:
        source = (image.image.base, str(image.image.directory))
    return (image.name, _state(image), *facts, *source)


def _state(image: ListedImage) -> str:
    if image.problem:
        return "broken"
    if image.current:
        return "built"
    if image.versions:
        return "changed since"
    return "not built"


def _document(image: ListedImage) -> dict[str, Any]:
    versions = []
    for version in image.versions:
        versions.append(
            {
                "content": version.content,
                "image_id": version.id,
                "tags": list(version.tags),
                "size": version.size,
                "created": version.created,
                "current": version.id == image.current,
            }
        )

    source = image.image
    return {
        "name": image.name,
        "state": _state(image),
        "base": source and source.base,
        "directory": source and str(source.directory),
        "problem": str(image.problem) if image.problem else None,
        "versions": versions,
    }
