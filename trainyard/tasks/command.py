"""The common parts of tasks: flags, their letters, and printing of results."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke import tasks
from invoke.context import Context

from trainyard import paths
from trainyard.api import lazy
from trainyard.console import command_hints, report
from trainyard.console.report import Report
from trainyard.paths import Here

if TYPE_CHECKING:
    from trainyard.importing.clusters import Clusters
    from trainyard.importing.job import Imported
    from trainyard.operations.cluster import Cluster
    from trainyard.steps import Progress

# One-letter flags: each means the same in all tasks. Only flags of many tasks have a letter.
LETTERS = {"file": "f", "set": "s", "backend": "b", "json": "j"}
FILE = "Cluster file, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local)."
# Flags that many tasks share: (default, help).
SHARED: dict[str, tuple[Any, str]] = {
    "file": (None, FILE),
    "set_": (
        None,
        "Set one value of the file: PATH=VALUE, such as workers.0.count=2; may be repeated.",
    ),
    "backend": ("", "Use another backend than the file's."),
    "json": (False, "Print one JSON document on stdout; everything else goes to stderr."),
}
REGISTRY = ("file", "set_")
CLUSTER = (*REGISTRY, "backend")


def words_behind_dashes() -> list[str]:
    """Return the words after `--` as typed: Invoke joins them with blanks."""
    if "--" in sys.argv:
        return sys.argv[sys.argv.index("--") + 1 :]
    return []


def import_report(call: Call, found: Imported | Clusters, output: str) -> Report:
    """Report imported files; write them unless --dry is given."""
    written = []
    if call.dry:
        lazy.importing.try_out(found)
    else:
        directory = Path(output) if output else None
        written = [paths.shown(path) for path in found.write(directory)]

    return Report(
        {"text": found.text, "written": written},
        [found.text.rstrip()],
        notes=found.notes,
        next=" ".join([found.next, *written[:1]]) if written else "",
    )


@dataclass(frozen=True)
class Call:
    """A task's call: its name, its summary, and the values of shared flags."""

    task: str
    summary: str
    dry: bool = False
    json: bool = False
    file: str | None = None
    overrides: tuple[str, ...] = ()
    backend: str | None = None

    @property
    def progress(self) -> Progress:
        return lazy.progress.for_stream()

    @property
    def here(self) -> Here:
        return Here(os.environ, Path.cwd())

    def cluster(self) -> Cluster:
        """Find the cluster of -f, --set and --backend. Raises RequestError."""
        here = self.here
        return lazy.clusters.find(
            self.file,
            here.environ,
            directory=here.directory,
            overrides=self.overrides,
            backend=self.backend,
        )

    def skipped(self, about: str = "") -> Report:
        """Return the report of a task that --dry does not run."""
        what = self.summary
        if about:
            what += f" ({about})"
        return Report(
            {"would": self.task, "about": what},
            [f"would: {what}"],
            notes=["nothing was done (--dry)"],
        )


class Command(tasks.Task[Any]):
    """A task whose function gets a Call and its flags, and returns a Report.

    None instead of a Report means that the function has printed everything
    itself.
    """

    def __init__(
        self,
        body: Callable[..., Report | None],
        *,
        shared: tuple[str, ...],
        dry: bool,
        collection: str,
        **options: Any,
    ) -> None:
        self._collection = collection
        self._shared = (*shared, "json")
        self._runs_dry = dry
        texts = {name: SHARED[name][1] for name in self._shared}
        options["help"] = {**texts, **options.get("help", {})}
        options["iterable"] = ["set_", *options.get("iterable", ())]
        super().__init__(body, auto_shortflags=False, **options)

    def argspec(self, body: Callable[..., Any]) -> inspect.Signature:
        own = list(inspect.signature(body).parameters.values())[1:]
        kind = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter(name, kind, default=SHARED[name][0]) for name in self._shared]
        return inspect.Signature([*own, *shared])

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        letter = LETTERS.get(options["names"][0])
        if letter is None:
            return options
        return {**options, "names": [*options["names"], letter]}

    def __call__(self, context: Context, /, **values: Any) -> None:
        """Run the task and print its Report.

        Commands in messages get the flags of this call.
        """
        collection = self._collection or self.__module__.rpartition(".")[2]
        if self.name == collection:
            name = self.name
        else:
            name = f"{collection}.{self.name}"

        command_hints.remember(name, values)
        shared = {flag: values.pop(flag) for flag in self._shared if flag in values}
        call = Call(
            name,
            (self.__doc__ or name).splitlines()[0],
            dry=bool(context.config.run.dry),
            json=bool(shared.get("json")),
            file=shared.get("file"),
            overrides=tuple(shared.get("set_") or ()),
            backend=shared.get("backend") or None,
        )

        report.begin(json=call.json)
        if call.dry and not self._runs_dry:
            result = call.skipped()
        else:
            result = self.body(call, **values)

        self.times_called += 1
        if result is not None:
            report.show(result, json=call.json)


def task(
    *shared: str, dry: bool = False, collection: str = "", **options: Any
) -> Callable[[Callable[..., Report | None]], Command]:
    """Turn a function into a task.

    The task gets --json, and those SHARED flags that `shared` names.

    Set `dry` for a function that only reads, or that checks `call.dry` itself:
    such a function also runs with --dry. Without `dry`, --dry only prints the
    function's summary. `collection` is the first part of the command's name, by
    default the module's name.
    """
    return lambda body: Command(body, shared=shared, dry=dry, collection=collection, **options)
