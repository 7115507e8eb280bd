"""Build, check and push training images, and prove that the nodes can run them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.console import report
from trainyard.console.report import Report, Table, step_documents
from trainyard.results.formats import size
from trainyard.steps import PlannedStep
from trainyard.tasks import lazy
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
    """Build an image under the hash of its content; quick where nothing changed."""
    with _open(call, image, base, platform) as command:
        if call.dry:
            return _planned(
                command, lazy.pipeline.plan_build(command, no_cache=not cache), again="image.build"
            )
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
        (
            f"image {built.name} is built: {built.reference_local} ({size(built.size)}), also "
            f"{built.alias_local}"
        )
    ]

    if base:
        lines.append(
            f"--base counts for this build; for clusters on it: build: {{base: {base}}} in their "
            "file"
        )

    return Report(document, lines, next="trainyard image.lint")


@task(*CLUSTER, positional=["image"], help=HELP)
def lint(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Run an image once and look at all that clusters need of it; exit 5 if something is wrong."""
    with _open(call, image, base, platform) as command:
        found = lazy.pipeline.run_lint(command, on_progress=_busy)
    rows = []
    for each in found.findings:
        rows.append(
            (each.check, "skipped" if each.skipped else "ok" if each.ok else "WRONG", each.detail)
        )
    table = Table(("check", "result", "detail"), rows, title=found.reference)
    return Report(found.document(), [table], next="trainyard image.push", error=found.error)


@task(
    *CLUSTER,
    dry=True,
    positional=["image"],
    help={**HELP, "skip_lint": "Push it as it is, without looking at it first."},
)
def push(
    call: Call, image: str = "", base: str = "", platform: str = "", skip_lint: bool = False
) -> Report:
    """Build an image if it changed, check it, push it; clusters run the digest that this prints."""
    lazy.clusters.refuse_without_registry(call.cluster())
    with _open(call, image, base, platform) as command:
        if call.dry:
            return _planned(
                command, lazy.pipeline.plan_push(command, skip_lint=skip_lint), again="image.push"
            )
        pushed, results = lazy.pipeline.run_push(command, call.progress, skip_lint=skip_lint)

    moved = "nothing was sent: the registry had it"
    if pushed.layers_sent:
        moved = (
            f"{counted(pushed.layers_sent, 'layer')} sent ({size(pushed.bytes_sent)}), "
            f"{pushed.layers_there} were there"
        )

    name = _name(command)
    return Report(
        {"image": name, **asdict(pushed), "steps": step_documents(results)},
        [
            f"image {name} is pushed: {pushed.reference}",
            f"also {pushed.tag} and {pushed.alias}; {moved}",
        ],
        next=f"trainyard {after_push(command.spec.backend)}",
    )


@task(*CLUSTER, dry=True, positional=["image"], help=HELP)
def verify(call: Call, image: str = "", base: str = "", platform: str = "") -> Report:
    """Let every host of a cluster pull what was pushed, by its digest, and run it; exit 6 if one
    cannot.
    """
    cluster = _cluster(call, image, base, platform)
    spec = cluster.spec
    if call.dry:
        step = PlannedStep(
            "Pull and run the image on every host", "would", f"cluster {spec.name} ({spec.backend})"
        )
        return report.planned({"cluster": spec.name}, [step])

    found = lazy.clusters.verify(cluster, report=_busy)
    kept = ("host", "reference", "seconds", "result", "ok")
    hosts = []

    for host in found.hosts:
        hosts.append(
            {**{key: getattr(host, key) for key in kept}, "seconds": round(host.seconds, 3)}
        )

    rows = []
    for host in found.hosts:
        rows.append((host.host, f"{host.seconds:.1f}", "ok" if host.ok else "FAILED", host.result))

    return Report(
        {"ok": found.error is None, "hosts": hosts, "remark": found.remark},
        [
            Table(("host", "seconds", "result", "detail"), rows),
            *([found.remark] if found.remark else []),
        ],
        next="trainyard cluster.up",
        error=found.error,
    )


@task(*CLUSTER, dry=True, name="list")
def list_(call: Call) -> Report:
    """List the images that can be built here, and what Docker has of each."""
    with _open(call) as command:
        return listed(lazy.pipeline.listed(command), command.name)


def listed(images: Sequence[ListedImage], name: str = "") -> Report:
    """Show the images, and what is wrong with those that cannot be read; `name` is the one that the
    cluster runs.
    """
    names = [image.name for image in images]
    proposed = name if name in names else "".join(names[:1])
    columns = ("image", "state", "content", "size", "built", "base", "directory")
    return Report(
        {"images": [_document(image) for image in images]},
        [Table(columns, [_row(image) for image in images])],
        notes=[
            f"image {image.name} cannot be built: {image.problem}"
            for image in images
            if image.problem
        ],
        next=f"trainyard image.build {proposed}" if proposed else "",
    )


def after_push(backend: str) -> str:
    """Return the command that uses what was pushed."""
    from trainyard import backends

    return backends.named(backend).traits.pushed_image or "cluster.up -f compose"


def _cluster(call: Call, image: str = "", base: str = "", platform: str = "") -> Cluster:
    """Return the cluster that the flags mean, with the image and its build as they say."""
    named = {"base": base, "platform": platform}
    overrides = (
        *call.overrides,
        *(f"build.{name}={value}" for name, value in named.items() if value),
    )
    cluster = replace(call, overrides=overrides).cluster()
    # Not by --set: a directory may be named by any path to it.
    if image:
        spec = cluster.spec.with_image(image)
    else:
        spec = cluster.spec
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
    current = next((facts for facts in image.versions if facts.id == image.current), None)
    newest = current or (image.versions[0] if image.versions else None)
    if newest:
        facts = (newest.content or "", size(newest.size), newest.created[:19])
    else:
        facts = ("", "", "")
    if image.image:
        where = (image.image.base, str(image.image.directory))
    else:
        where = ("", "")
    return (image.name, _state(image), *facts, *where)


def _state(image: ListedImage) -> str:
    if image.problem:
        return "broken"
    if image.current:
        return "built"
    if image.versions:
        return "changed since"
    return "not built"


def _document(image: ListedImage) -> dict[str, Any]:
    source = image.image
    return {
        "name": image.name,
        "state": _state(image),
        "base": source and source.base,
        "directory": source and str(source.directory),
        "problem": str(image.problem) if image.problem else None,
        "versions": [
            {
                "content": facts.content,
                "image_id": facts.id,
                "tags": list(facts.tags),
                "size": facts.size,
                "created": facts.created,
                "current": facts.id == image.current,
            }
            for facts in image.versions
        ],
    }
