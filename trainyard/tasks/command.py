"""The decorator of every task: a letter means the same flag in all of them, and only flags that all share have one."""

from __future__ import annotations

from functools import partial
from typing import Any

from invoke import tasks

LETTERS = {"file": "f", "set": "s", "backend": "b", "json": "j"}


class Command(tasks.Task[Any]):
    """A task whose flags get no letters but those."""

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """Return what Invoke makes of a parameter."""
        found = super().arg_opts(name, default, taken_names)
        letter = LETTERS.get(found["names"][0])
        return {**found, "names": [*found["names"], letter] if letter else found["names"]}


task = partial(tasks.task, klass=Command, auto_shortflags=False)
