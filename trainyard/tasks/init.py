"""Begin a project (a cluster file, a job that runs, and a CI workflow that runs it), or one more cluster file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainyard import __version__, paths
from trainyard.errors import PrerequisiteError, Problem, RequestError
from trainyard.tasks.command import Call, task
from trainyard.tasks.report import Report
from trainyard.wording import did_you_mean

NAME_LIMIT = 40
_HOSTS = re.compile(r"^(  hosts:.*\n)(?:    - .*\n)+", re.MULTILINE)


@task(positional=["directory"], help={"directory": "Where to (default: here); it is made if it is not there."})
def init(call: Call, directory: str = ".") -> Report:
    """Write a project: a cluster file, a job that runs, a CI workflow that runs it. Overwrites nothing."""
    files = contents(Path(directory))
    for path, text in files.items():
        _write(path, text)
    names = [str(path) for path in files]
    enter = "" if directory == "." else f"cd {shlex.quote(directory)} && "
    return Report({"directory": directory, "files": names}, names, next=f"{enter}trainyard cluster.up")


@task(
    positional=["name", "hosts"],
    iterable=["hosts"],
    help={
        "name": "The cluster's name; the file is clusters/NAME.yaml.",
        "hosts": "[user@]host[:port] of each machine, for a backend that takes hosts; the first is the control plane.",
        "backend": "What makes its nodes (default: local).",
    },
)
def new(call: Call, name: str, hosts: list[str] | None = None, backend: str = paths.DEFAULT_CLUSTER) -> Report:
    """Write a commented cluster file, clusters/NAME.yaml, from the example of its backend. Overwrites nothing."""
    from trainyard.spec.load import load_cluster

    text = cluster_file(name, backend, hosts or ())
    path = Path("clusters") / f"{name}.yaml"
    if path.exists():
        raise RequestError(f"{path} exists", hint="Choose another name, or edit that file.")
    _write(path, text)
    try:
        load_cluster(path)
    except RequestError:
        path.unlink()
        raise
    has_registry = re.search(r"^registry:", text, re.MULTILINE)
    notes = ["note: `registry:` is an example: write the address of yours"] if has_registry else []
    if not hosts and _HOSTS.search(text):
        notes.append("note: `hosts:` are examples: write yours")
    return Report({"file": str(path)}, [str(path)], notes=notes, next=f"trainyard cluster.plan -f {name}")


def cluster_file(name: str, backend: str, hosts: Sequence[str]) -> str:
    """Return the example of a backend with another name, and with these hosts. Raises RequestError."""
    from trainyard.spec.fields import NAME_PATTERN

    files = {path.stem: path.read_text() for path in sorted(paths.shipped("clusters").glob("*.yaml"))}
    examples = {stem: text for stem, text in files.items() if f"\nbackend: {stem}\n" in text}
    with_hosts = [example for example, text in examples.items() if _HOSTS.search(text)]
    if not re.fullmatch(NAME_PATTERN, name):
        rule = "Lower-case letters, digits and '-', the first a letter, at most 40."
        raise RequestError(f"{name!r} is no cluster's name", hint=rule)
    if backend not in examples:
        meant = did_you_mean(backend, examples)
        raise RequestError(f"no backend is called {backend!r}{meant}", hint=f"There are: {', '.join(examples)}")
    if hosts and backend not in with_hosts:
        raise RequestError(f"the backend {backend!r} takes no hosts", hint=f"--backend {' or '.join(with_hosts)} does.")
    text = re.sub(r"(?m)^name: \S+", f"name: {name}", examples[backend], count=1)
    text = text.replace(f"-f {backend}", f"-f {name}")
    text = re.sub(r"(?m)(trainyard [a-z]+\.[a-z]+)(?!.* -f )", rf"\1 -f {name}", text)
    if hosts:
        listed = "".join(f"    - {{address: {json.dumps(host)}}}\n" for host in hosts)
        text = _HOSTS.sub(lambda match: match[1] + listed, text)
        # The head has a host too.
        text = re.sub(r"count: \d+", f"count: {max(len(hosts) - 1, 1)}", text, count=1)
    return text


def contents(directory: Path) -> Mapping[Path, str]:
    """Return the files of a new project there, none of which may exist. Raises RequestError."""
    ours = paths.shipped("project")
    found = {path.relative_to(ours): path.read_text() for path in sorted(ours.rglob("*")) if path.is_file()}
    found[Path("requirements.txt")] = f"trainyard[local]=={__version__}\n"
    cluster = (paths.shipped("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml").read_text()
    # Two projects on one machine have two clusters.
    named = re.sub(r"(?m)^name: \S+", f"name: {_name(directory)}", cluster, count=1)
    found[Path("clusters") / f"{paths.DEFAULT_CLUSTER}.yaml"] = named
    existing = [directory / name for name in found if (directory / name).exists()]
    if existing:
        raise RequestError(
            f"{directory} has files that a new project would overwrite",
            problems=tuple(Problem(str(path), "exists") for path in existing),
            hint="Name another directory: trainyard init DIRECTORY",
        )
    return {directory / name: text for name, text in found.items()}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise PrerequisiteError(f"cannot write {path}: {error.strerror}") from error


def _name(directory: Path) -> str:
    letters = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return letters[:NAME_LIMIT].strip("-") or paths.DEFAULT_CLUSTER
