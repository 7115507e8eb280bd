"""What the image tasks print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainyard import labels
from trainyard.backends import BACKENDS
from trainyard.images.image_command import ImageCommand
from trainyard.images.lint import LintReport
from trainyard.images.pipeline import ListedImage
from trainyard.images.types import Built, Pushed, Verified
from trainyard.results.formats import size
from trainyard.spec import ClusterSpec
from trainyard.steps import PlannedStep, StepResult
from trainyard.tasks import report
from trainyard.tasks.report import Report, Table, note, step_documents


def busy(text: str) -> None:
    note(f"  ... {text}")


def planned(command: ImageCommand, plan: Sequence[PlannedStep], *, again: str) -> Report:
    name = command.image.name if command.image else command.name
    return report.planned({"image": name}, plan, next=f"invoke {again}")


def built(image: Built, results: Sequence[StepResult], *, base: str) -> Report:
    """Say what was built; `base` is the flag."""
    document = {
        "image": image.name,
        "reference": image.reference_local,
        "alias": image.alias_local,
        "content": image.content,
        "image_id": image.image_id,
        "platform": image.platform,
        "size": image.size,
        "steps": step_documents(results),
    }
    what = f"{image.reference_local} ({size(image.size)}), also {image.alias_local}"
    lines = [f"image {image.name} is built: {what}"]
    if base:
        lines.append(f"--base counts for this build; for clusters on it: build: {{base: {base}}} in their file")
    return Report(document, lines, next="invoke image.lint")


def checked(found: LintReport) -> Report:
    """Show what each check found; the error is LintError if something is wrong."""
    rows = [
        (each.check, "skipped" if each.skipped else "ok" if each.ok else "WRONG", each.detail)
        for each in found.findings
    ]
    table = Table(("check", "result", "detail"), rows, title=found.reference)
    return Report(found.document(), [table], next="invoke image.push", error=found.error)


def pushed(command: ImageCommand, pushed: Pushed, results: Sequence[StepResult]) -> Report:
    """Say what the registry has now: the digest is what clusters run."""
    name = command.image.name if command.image else command.name
    moved = "nothing was sent: the registry had it"
    if pushed.layers_sent:
        moved = f"{pushed.layers_sent} layers sent ({size(pushed.bytes_sent)}), {pushed.layers_there} were there"
    return Report(
        {"image": name, **asdict(pushed), "steps": step_documents(results)},
        [f"image {name} is pushed: {pushed.reference}", f"also {pushed.tag} and {pushed.alias}; {moved}"],
        next=f"invoke {after_push(command.spec.backend)}",
    )


def after_push(backend: str) -> str:
    return BACKENDS[backend].TRAITS.pushed_image or "cluster.up -f compose"


def would_verify(spec: ClusterSpec) -> Report:
    step = PlannedStep("Pull and run the image on every host", "would", f"cluster {spec.name} ({spec.backend})")
    return report.planned({"cluster": spec.name}, [step])


def verified(found: Verified) -> Report:
    """Show every host; the error is a host's if one of them cannot run the image."""
    kept = ("host", "reference", "seconds", "result", "ok")
    hosts = [{**{key: getattr(host, key) for key in kept}, "seconds": round(host.seconds, 3)} for host in found.hosts]
    rows = [(host.host, f"{host.seconds:.1f}", "ok" if host.ok else "FAILED", host.result) for host in found.hosts]
    remark = [found.remark] if found.remark else []
    return Report(
        {"ok": found.ok, "hosts": hosts, "remark": found.remark},
        [Table(("host", "seconds", "result", "detail"), rows), *remark],
        next="invoke cluster.up",
        error=found.error,
    )


def listed(images: Sequence[ListedImage]) -> Report:
    """Show the images."""
    columns = ("image", "state", "content", "size", "built", "base", "directory")
    problems = [f"image {image.name} cannot be built: {image.problem}" for image in images if image.problem]
    return Report(
        {"images": [_document(image) for image in images]},
        [Table(columns, [_row(image) for image in images])],
        notes=problems,
        next=f"invoke image.build {images[0].name}" if images else "",
    )


def _row(image: ListedImage) -> tuple[str, ...]:
    current = next((facts for facts in image.versions if facts.id == image.current), None)
    newest = current or (image.versions[0] if image.versions else None)
    facts = (newest.labels.get(labels.CONTENT, ""), size(newest.size), newest.created[:19]) if newest else ("", "", "")
    where = (image.image.base, str(image.image.directory)) if image.image else ("", "")
    return (image.name, _state(image), *facts, *where)


def _state(image: ListedImage) -> str:
    if image.problem:
        return "broken"
    if image.current:
        return "built"
    return "changed since" if image.versions else "not built"


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
                "content": facts.labels.get(labels.CONTENT),
                "image_id": facts.id,
                "tags": list(facts.tags),
                "size": facts.size,
                "created": facts.created,
                "current": facts.id == image.current,
            }
            for facts in image.versions
        ],
    }
