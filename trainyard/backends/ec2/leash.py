"""The leash: a process on the head that ends the workers, then the head."""

from __future__ import annotations

import json

from trainyard_runner.leash import HOLDS
from trainyard_runner.wire.text import last_line

from trainyard.backends.contract import LeashStatus
from trainyard.backends.ec2 import desired, naming, nodes, snapshot
from trainyard.backends.ec2.location import Location
from trainyard.backends.ec2.snapshot import Instance
from trainyard.backends.shared.leash import Leash, settings, source
from trainyard.errors import OutsideError, TrainyardError
from trainyard.seams.programs import Ran

_DIRECTORY = "~/.trainyard-leash"
# The leash's process locks the file `lock` while it lives, so that `flock` shows if it runs.
_OBSERVE = f"""cd {_DIRECTORY} 2>/dev/null && cat settings 2>/dev/null || exit 0
stat -c %Y settings; flock -n lock true && echo ended || echo running; grep -c '{HOLDS}$' log; tail -n 1 log"""
_END = f"""mkdir -p -m 700 {_DIRECTORY} && cd {_DIRECTORY} && umask 077
flock -n lock true || kill "$(cat pid)"
flock -w 20 lock rm -f settings log || exit
"""
# The leash needs a Python with boto3, found in the same way as in head_setup_commands.
_START = """for python in python python3; do "$python" -c "import boto3" 2>/dev/null && break; done
printf '%s\\n' "${@: -1}" >settings
(exec 9>lock; flock 9; echo $BASHPID >pid; exec setsid "$python" "$@") >log 2>&1 </dev/null &"""


def of(location: Location) -> Leash:
    """Return the leash. Its deadline counts from the head's launch."""

    def head() -> Instance | None:
        return snapshot.head(snapshot.of_cluster(location))

    def start(status: LeashStatus) -> None:
        if instance := head():
            _start(location, instance, status)

    def end() -> None:
        if instance := head():
            _run(location, instance, _END)

    return Leash(lambda: observe(location, head()), lambda: made(head()), start, end)


def made(head: Instance | None) -> float | None:
    if head:
        return head.launched.timestamp()
    return None


def observe(location: Location, head: Instance | None) -> LeashStatus | None:
    """Ask the head by SSH for its leash; None without a leash or an answer."""
    if head is None or head.state != "running":
        return None

    try:
        lines = _run(location, head, _OBSERVE, check=False).stdout.splitlines()
    except TrainyardError:
        return None

    if len(lines) < 4:
        return None

    written, since, state, holds, *log = lines
    given = json.loads(written)
    problem = ""
    if state != "running" or holds == "0":
        problem = ": ".join([f"its process on the head: {state}", *filter(None, log)])
    return LeashStatus(given["idle"], given["deadline"], float(since), problem)


def _start(location: Location, head: Instance, leash: LeashStatus) -> None:
    files = desired.files(head.tags.get(naming.IMAGE, ""))
    target = {"region": location.aws.region, "tags": {naming.CLUSTER: location.name}}
    address = f"http://127.0.0.1:{nodes.DASHBOARD_PORT}"
    given = settings(leash, dashboard=address, token_file=f"{files}/token", ec2=target)
    _run(location, head, f". {files}/environment; {_END}{_START}", *source()[1:], given)


def _run(
    location: Location, head: Instance, script: str, *arguments: str, check: bool = True
) -> Ran:
    words = snapshot.inside(head, ["bash", "-c", script, "leash", *arguments], terminal=False)
    ran = snapshot.reach(location, head).run(words)
    if check and ran.code != 0:
        where = last_line(ran.stderr) or None
        raise OutsideError("the leash cannot be set or ended on the head", where=where)
    return ran
