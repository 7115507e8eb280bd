"""What the image tasks print: a document for machines, or a table and the next command for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainyard import labels
from trainyard.backends import BACKENDS
from trainyard.images.image_command import ImageCommand
from trainyard.images.lint import LintReport
from trainyard.images.pipeline import BuildResult, ListedImage, PushResult
from trainyard.images.verified import Verified
from trainyard.results.formats import size
from trainyard.seams.docker.images import ImageFacts
from trainyard.spec import ClusterSpec
from trainyard.steps import PlannedStep, StepResult
from trainyard.tasks.output import as_document, print_json, print_next, print_table, say


def planned(bench: ImageCommand, plan: Sequence[PlannedStep], *, command: str, json: bool) -> None:
    """Print what a command would do."""
    if json:
        print_json({"image": _name(bench), "steps": [as_document(step) for step in plan]})
        return
    for step in plan:
        say(f"  {step.state:<7}  {step.title}" + (f"  ({step.detail})" if step.detail else ""))
    print_next(f"invoke {command}")


def made(bench: ImageCommand, made: BuildResult, *, json: bool) -> None:
    """Print what was built."""
    built = made.built
    if json:
        print_json({**_built_document(made), "steps": _steps(made.results)})
        return
    say(f"image {built.name} is built: {built.reference_local} ({size(made.facts.size)}), also {built.alias_local}")
    if bench.flags.base:
        say(f"--base counts for this build; for clusters on it: build: {{base: {bench.flags.base}}} in their file")
    print_next("invoke image.lint")


def looking(text: str) -> None:
    """Print what a check is at."""
    say(f"  ... {text}", file=sys.stderr)


def checked(bench: ImageCommand, report: LintReport, *, json: bool) -> None:
    """Print what was found; raise LintError if something is wrong."""
    if json:
        print_json(report.document())
    else:
        rows = [
            (found.check, "skipped" if found.skipped else "ok" if found.ok else "WRONG", found.detail)
            for found in report.findings
        ]
        print_table(("check", "result", "detail"), rows, title=report.reference)
    report.check()
    if not json:
        print_next("invoke image.push")


def sent(bench: ImageCommand, sent: PushResult, *, json: bool) -> None:
    """Print what the registry has now: the digest is what clusters run."""
    pushed = sent.pushed
    if json:
        print_json({"image": sent.built.name, **asdict(pushed), "steps": _steps(sent.results)})
        return
    say(f"image {sent.built.name} is pushed: {pushed.reference}")
    say(f"also {pushed.tag} and {pushed.alias}; {_moved(pushed.layers_sent, pushed.layers_there, pushed.bytes_sent)}")
    print_next(f"invoke {after_push(bench.spec.backend)}")


def after_push(backend: str) -> str:
    """Return the command that uses an image that is in the registry."""
    return BACKENDS[backend].TRAITS.pushed_image or "cluster.up -f compose"


def would_verify(spec: ClusterSpec, *, json: bool) -> None:
    """Say what verifying would do."""
    steps = [PlannedStep("Pull and run the image on every host", "would", f"cluster {spec.name} ({spec.backend})")]
    if json:
        print_json({"cluster": spec.name, "steps": [as_document(step) for step in steps]})
        return
    say(f"  would    {steps[0].title}  ({steps[0].detail})")


def verified(found: Verified, *, json: bool) -> None:
    """Print every host; raise its error if one of them cannot run the image."""
    if json:
        hosts = [
            {
                "host": one.host,
                "reference": one.reference,
                "seconds": round(one.seconds, 3),
                "result": one.result,
                "ok": one.ok,
            }
            for one in found.hosts
        ]
        print_json({"ok": found.ok, "hosts": hosts, "remark": found.remark})
    else:
        rows = [(one.host, f"{one.seconds:.1f}", "ok" if one.ok else "FAILED", one.result) for one in found.hosts]
        print_table(("host", "seconds", "result", "detail"), rows)
        if found.remark:
            say(found.remark)
    found.check()
    if not json:
        print_next("invoke cluster.up")


def listed(found: Sequence[ListedImage], *, json: bool) -> None:
    """Print the images."""
    if json:
        print_json({"images": [_listed_document(one) for one in found]})
        return
    print_table(("image", "state", "content", "size", "built", "base", "directory"), [_row(one) for one in found])
    for one in found:
        if one.problem:
            say(f"image {one.name} cannot be built: {one.problem}", file=sys.stderr)
    for one in [one for one in found if one.image][:1]:
        print_next(f"invoke image.build {one.name}")


def _row(one: ListedImage) -> tuple[str, ...]:
    newest = _current(one) or (one.versions[0] if one.versions else None)
    facts = (newest.labels.get(labels.CONTENT, ""), size(newest.size), newest.created[:19]) if newest else ("", "", "")
    if one.image is None:
        return (one.name, _state(one), *facts, "", "")
    return (one.name, _state(one), *facts, one.image.base, str(one.image.directory))


def _state(one: ListedImage) -> str:
    if one.problem:
        return "broken"
    if one.current:
        return "built"
    return "changed since" if one.versions else "not built"


def _current(one: ListedImage) -> ImageFacts | None:
    return next((facts for facts in one.versions if facts.id == one.current), None)


def _listed_document(one: ListedImage) -> dict[str, Any]:
    return {
        "name": one.name,
        "state": _state(one),
        "base": one.image.base if one.image else None,
        "directory": str(one.image.directory) if one.image else None,
        "problem": str(one.problem) if one.problem else None,
        "versions": [
            {
                "content": facts.labels.get(labels.CONTENT),
                "image_id": facts.id,
                "tags": list(facts.tags),
                "size": facts.size,
                "created": facts.created,
                "current": facts.id == one.current,
            }
            for facts in one.versions
        ],
    }


def _built_document(made: BuildResult) -> dict[str, Any]:
    built = made.built
    return {
        "image": built.name,
        "reference": built.reference_local,
        "alias": built.alias_local,
        "content": built.content,
        "image_id": built.image_id,
        "platform": made.facts.platform,
        "size": made.facts.size,
    }


def _moved(layers_sent: int, layers_there: int, bytes_sent: int) -> str:
    if not layers_sent:
        return "nothing was sent: the registry had it"
    return f"{layers_sent} layers sent ({size(bytes_sent)}), {layers_there} were there"


def _name(bench: ImageCommand) -> str:
    return bench.image.name if bench.image else str(bench.reference)


def _steps(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [{**as_document(result), "seconds": round(result.seconds, 3)} for result in results]
