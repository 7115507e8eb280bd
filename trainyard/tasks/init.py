"""The tasks that write files: init, cluster.new and cluster.import."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.api import lazy
from trainyard.console.report import Report
from trainyard.errors import RequestError
from trainyard.tasks.command import Call, import_report, task, words_behind_dashes
from trainyard.wording import did_you_mean

if TYPE_CHECKING:
    from trainyard.operations.new_project import Made

_HOSTS = re.compile(r"^(  hosts:.*\n)(?:    - .*\n)+", re.MULTILINE)


@task(
    positional=["directory"],
    help={"directory": "The directory (default: this one); it is created if it does not exist."},
)
def init(call: Call, directory: str = ".") -> Report:
    """Write the files of a project: a cluster file, a job, CI. Existing files stay unchanged."""
    made = lazy.new_project.make(Path(directory), call.progress)
    written = [str(Path(directory, name)) for name in made.written]
    document = {
        "directory": directory,
        "files": written,
        "existed": [str(Path(directory, name)) for name in made.existed],
        "add": {str(Path(directory, name)): lines for name, lines in made.add.items()},
    }

    next = "trainyard cluster.up"
    if directory != ".":
        next = f"cd {shlex.quote(directory)} && {next}"
    return Report(document, written, notes=list(_notes(Path(directory), made)), next=next)


def _notes(directory: Path, made: Made) -> Iterator[str]:
    if made.existed:
        yield f"unchanged: {', '.join(str(directory / name) for name in made.existed)}"
    for name, lines in made.add.items():
        yield f"add to the end of {directory / name}:"
        for line in lines:
            yield f"    {line}"
    for remark in made.remarks:
        yield f"note: {remark}"


@task(
    collection="cluster",
    positional=["name", "hosts"],
    iterable=["hosts"],
    help={
        "name": "The cluster's name; the file is clusters/NAME.yaml.",
        "hosts": (
            "[user@]host[:port] of each machine, for a backend that takes hosts; the first "
            "is the control plane."
        ),
        "backend": "The backend that makes the cluster's nodes (default: local).",
    },
)
def new(
    call: Call, name: str, hosts: list[str] | None = None, backend: str = paths.DEFAULT_CLUSTER
) -> Report:
    """Write a commented cluster file, clusters/NAME.yaml, for a backend. Overwrites nothing."""
    from trainyard.spec.load import load_cluster

    text = cluster_file(name, backend, hosts or ())
    path = Path("clusters") / f"{name}.yaml"
    if path.exists():
        raise RequestError(f"{path} exists", hint="Choose another name, or edit that file.")

    lazy.new_project.write(path, text.encode())
    try:
        load_cluster(path)
    except RequestError:
        path.unlink()
        raise

    notes = []
    if re.search(r"^registry:", text, re.MULTILINE):
        notes.append("note: `registry:` is an example: write the address of yours")
    if not hosts and _HOSTS.search(text):
        notes.append("note: `hosts:` are examples: write yours")

    return Report(
        {"file": str(path)}, [str(path)], notes=notes, next=f"trainyard cluster.plan -f {name}"
    )


@task(
    dry=True,
    collection="cluster",
    name="import",
    positional=["source"],
    help={
        "source": "A RayCluster of KubeRay (YAML), a file of `ray up` on AWS, a "
        "~/.cluster_config of Isaac Lab, a file with a command line of its launch.py; or that "
        "command line itself, after `--`. With --context: the beginning of RayClusters' names.",
        "context": (
            "Import the RayClusters that another tool made on the Kubernetes of this context."
        ),
        "namespace": "With --context: only RayClusters of this namespace (default: of all).",
        "output": "The directory to write to (default: clusters/).",
    },
)
def import_(
    call: Call, source: str = "", output: str = "", context: str = "", namespace: str = ""
) -> Report:
    """Write a cluster file from another tool's file; name everything that is left out.

    Overwrites nothing. Only --context contacts Kubernetes; its files use existing RayClusters as
    they are.
    """
    words = words_behind_dashes()
    if namespace and not context:
        raise RequestError("--namespace works only together with --context")
    if context and words:
        raise RequestError("--context imports existing RayClusters: leave out the words behind --")

    if context:
        found = lazy.importing.of_context(
            os.environ, context=context, prefix=source, namespace=namespace or None
        )
    else:
        found = lazy.importing.convert_cluster(Path(source) if source else None, words)

    return import_report(call, found, output)


def cluster_file(name: str, backend: str, hosts: Sequence[str]) -> str:
    """Return a backend's sample cluster file with this name and these hosts.

    Raises RequestError for a wrong name, an unknown backend, or hosts for a
    backend that takes none.
    """
    from trainyard.spec.fields import NAME_PATTERN

    examples = {}
    with_hosts = []
    for path in sorted(paths.shipped("clusters").glob("*.yaml")):
        text = path.read_text()
        if f"\nbackend: {path.stem}\n" not in text:
            continue
        examples[path.stem] = text
        if _HOSTS.search(text):
            with_hosts.append(path.stem)

    if not re.fullmatch(NAME_PATTERN, name):
        rule = "Lower-case letters, digits and '-', the first a letter, at most 40."
        raise RequestError(f"{name!r} cannot be a cluster's name", hint=rule)
    if backend not in examples:
        meant = did_you_mean(backend, examples)
        raise RequestError(
            f"no backend is called {backend!r}{meant}", hint=f"There are: {', '.join(examples)}"
        )
    if hosts and backend not in with_hosts:
        raise RequestError(
            f"the backend {backend!r} takes no hosts",
            hint=f"--backend {' or '.join(with_hosts)} does.",
        )

    text = re.sub(r"(?m)^name: \S+", f"name: {name}", examples[backend], count=1)
    text = text.replace(f"-f {backend}", f"-f {name}")
    text = re.sub(r"(?m)(trainyard [a-z]+\.[a-z]+)(?!.* -f )", rf"\1 -f {name}", text)

    if hosts:
        listed = "".join(f"    - {{address: {json.dumps(host)}}}\n" for host in hosts)
        text = _HOSTS.sub(lambda match: match[1] + listed, text)
        # One of the hosts is for the head.
        text = re.sub(r"count: \d+", f"count: {max(len(hosts) - 1, 1)}", text, count=1)

    return text
