"""What `--dry` means for each command: it only reads, it says itself what it would do, or it is not run at all."""

from __future__ import annotations

import sys
from typing import Any

from invoke.collection import Collection
from invoke.parser.context import ParserContext

# They change nothing anywhere; with --dry, what a cluster says meanwhile is shown and not recorded.
_READ = {
    *("cluster.plan", "cluster.status", "cluster.show", "cluster.list", "cluster.open", "cluster.logs"),
    *("image.list", "registry.status", "train.list", "train.status", "train.logs"),
}
# They ask what there is, and print what they would change.
_PLAN = {
    *("cluster.up", "cluster.down", "cluster.scale", "image.build", "image.push", "image.verify"),
    *("registry.up", "registry.down", "registry.trust", "smoke.run", "train.dispatch"),
}


def only_said(called: object, tasks: Collection) -> bool:
    """Say what a command of ours would do that is in neither list; return False for any other."""
    name = called.name if isinstance(called, ParserContext) else None
    if not isinstance(called, ParserContext) or name is None or name in _READ | _PLAN:
        return False
    body = tasks[name].body
    if not body.__module__.startswith("trainyard."):
        return False
    _say(name, (body.__doc__ or name).splitlines()[0], called.as_kwargs)
    return True


def _say(name: str, summary: str, values: dict[str, Any]) -> None:
    from trainyard.tasks.output import print_json, say

    about = ""
    if isinstance(values.get("run"), str):
        from trainyard import training

        find = training.run_to_stop if name == "train.stop" else training.find_run
        about = f" (run {find(values['run'] or None, values.get('file')).name})"
    if values.get("json"):
        print_json({"would": name, "about": summary + about})
    else:
        say(f"would: {summary}{about}")
    say("nothing was done (--dry)", file=sys.stderr)
