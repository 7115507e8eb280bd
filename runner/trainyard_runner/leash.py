"""The leash: ends a cluster at its deadline, or after a time without a job, although nobody is
there to do it.

A program of its own beside the head, which gets its source alone: standard library only, and boto3
on EC2. It asks Ray's dashboard which jobs go on; a dashboard that does not answer means that
nothing is known to be idle, and the deadline still counts.

Usage: leash.py SETTINGS, a JSON object: `deadline` (Unix seconds) and `idle` (seconds), null where
they do not count; `dashboard`, `token_file`; and `docker`, `kubernetes` or `ec2`: what is to be
removed, as `ENDINGS` describe it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
Jobs = list[dict[str, Any]]
Ask = Callable[[str, str], Any]
JOBS = "/api/jobs/"
EVERY = 5.0
HOLDS = "the leash holds"
# Ray's API stops a job without a reason: this package, which holds nothing, is there for runners to
# find.
MARK = "trainyard-leash.zip"
# Ray gives a stopped runner 8 s to bring outputs to the head, and whoever follows a run fetches
# them from there.
STOP_WITHIN = 15.0
FETCH_WITHIN = 10.0
GOING = ("PENDING", "RUNNING")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def ends_at(deadline: float | None, idle: float | None, idle_since: float | None) -> float | None:
    """Return when a cluster ends as things are now; `idle_since` is None while it is busy, or
    nobody knows.
    """
    moments = [deadline, None if idle is None or idle_since is None else idle_since + idle]
    return min((moment for moment in moments if moment is not None), default=None)


def idle_since(jobs: Jobs | None, since: float) -> float | None:
    """Return when the last job ended, or when counting began; None while a job goes on, or nobody
    answers.
    """
    if jobs is None or any(job["status"] in GOING for job in jobs):
        return None
    # Ray counts in milliseconds.
    return max([since, *((job.get("end_time") or 0) / 1000 for job in jobs)])


def hold(settings: Settings, end: Callable[[], None]) -> None:
    """Wait until the cluster is due, then stop its jobs and end it; `end` is tried until it raises
    nothing.
    """
    ask = dashboard(settings["dashboard"], settings["token_file"])
    began = time.time()
    # Whoever set it waits for one of these.
    say(HOLDS)

    if ready := settings.get("ready"):
        Path(ready).touch()

    while True:
        jobs = None
        if settings["idle"] is not None:
            jobs = ask("GET", JOBS)
        moment = ends_at(settings["deadline"], settings["idle"], idle_since(jobs, began))
        left = EVERY if moment is None else moment - time.time()
        if left <= 0:
            break
        time.sleep(min(EVERY, left))

    say("the leash ends this cluster")
    _stop_jobs(ask)

    while True:
        try:
            return end()
        except Exception as error:
            # Whatever it is: what does not end goes on to cost.
            say(f"not ended yet: {error}")
            time.sleep(EVERY)


def _stop_jobs(ask: Ask) -> None:
    going = [job["submission_id"] for job in ask("GET", JOBS) or () if job["status"] in GOING]
    ask("PUT", f"/api/packages/gcs/{MARK}")

    # A driver that nobody submitted ends with the nodes.
    for name in filter(None, going):
        say(f"stop {name}")
        ask("POST", f"{JOBS}{name}/stop")

    give_up = time.time() + STOP_WITHIN
    while (
        going
        and time.time() < give_up
        and any(job["status"] in GOING for job in ask("GET", JOBS) or ())
    ):
        time.sleep(0.5)

    if going:
        time.sleep(FETCH_WITHIN)


def dashboard(address: str, token_file: str | None) -> Ask:
    """Return what asks Ray's dashboard: METHOD and path in, the answer out, None if there is none.

    The token is read once: the directory that it comes from may be gone later.
    """
    if token_file:
        headers = {"Authorization": f"Bearer {Path(token_file).expanduser().read_text().strip()}"}
    else:
        headers = {}

    # Without the proxies of the environment, which would get the token.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(method: str, path: str) -> Any:
        body = b"-" if method == "PUT" else None
        request = urllib.request.Request(address + path, body, method=method, headers=headers)  # noqa: S310
        try:
            with opener.open(request, timeout=10) as answer:
                return json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    return ask


def docker(target: Settings, *, only_try: bool = False) -> None:
    """Remove the containers that carry all of `labels`, the `network`, and last `me`; volumes stay.

    `socket` is the engine's.
    """
    every = json.loads(
        _engine(target, "GET", f"/containers/json?all=1&filters={_filters(target['labels'])}")
    )
    if only_try:
        return
    for container in every:
        if f"/{target['me']}" not in (container["Names"] or ()):
            _engine(target, "DELETE", f"/containers/{container['Id']}?force=1&v=1")
    leave = {"Container": target["me"], "Force": True}
    _engine(target, "POST", f"/networks/{target['network']}/disconnect", leave)
    # 403: somebody else's container is on it.
    _engine(target, "DELETE", f"/networks/{target['network']}", fine=(403, 404))
    _engine(target, "DELETE", f"/containers/{target['me']}?force=1&v=1")


def _filters(labels: Sequence[str]) -> str:
    return urllib.parse.quote(json.dumps({"label": list(labels)}))


class _Socket(http.client.HTTPConnection):
    """HTTP through a UNIX socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.host)


def _engine(
    target: Settings,
    method: str,
    path: str,
    body: Settings | None = None,
    *,
    fine: Sequence[int] = (404,),
) -> bytes:
    """Ask the Docker engine; what is gone is no error."""
    connection = _Socket(target["socket"])
    # The path of a socket is no host's name.
    headers = {"Host": "docker", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    return _body(connection.getresponse(), f"{method} {path}", fine=fine)


def kubernetes(target: Settings, *, only_try: bool = False) -> None:
    """Delete the RayCluster `name` in `namespace`, if it still has this `uid`, with all that it
    owns.
    """
    # Python 3.13 refuses CAs without keyUsage (canonical/microk8s#4864).
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=60, context=trusted)
    path = f"/apis/ray.io/v1/namespaces/{target['namespace']}/rayclusters/{target['name']}"
    options = {"propagationPolicy": "Foreground", "preconditions": {"uid": target["uid"]}}
    # Not in the query, which the API server does not read where there is a body.
    options |= {"dryRun": ["All"]} if only_try else {}
    # Read each time: kubelets replace it.
    token = (_ACCOUNT / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("DELETE", path, json.dumps(options), headers)
    _body(connection.getresponse(), f"DELETE {path}", fine=(404, 409))


def ec2(target: Settings, *, only_try: bool = False) -> None:
    """Terminate the instances in `region` that carry all of `tags`; Ray's head, on which this runs,
    last of all.

    By boto3, which Ray's autoscaler needs there.
    """
    import boto3
    from botocore.exceptions import ClientError

    api = boto3.client("ec2", region_name=target["region"])
    chosen = {f"tag:{key}": [value] for key, value in target["tags"].items()}
    chosen["instance-state-name"] = ["pending", "running", "stopping", "stopped"]

    def instances() -> dict[str, bool]:
        """Return the ids, and which of them is the head."""
        pages = api.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": values} for name, values in chosen.items()]
        )
        found = [
            each for page in pages for part in page["Reservations"] for each in part["Instances"]
        ]

        return {
            each["InstanceId"]: {"Key": "ray-node-type", "Value": "head"} in each["Tags"]
            for each in found
        }

    if only_try:
        try:
            api.terminate_instances(InstanceIds=[*instances()], DryRun=True)
        except ClientError as error:
            if error.response["Error"]["Code"] != "DryRunOperation":
                raise
        return

    _kill_autoscaler()
    while workers := [name for name, is_head in instances().items() if not is_head]:
        api.terminate_instances(InstanceIds=workers)
        time.sleep(1)

    api.terminate_instances(InstanceIds=[*instances()])


def _kill_autoscaler() -> None:
    """Kill what would launch other workers, and wait for those that it asked for last."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            # This text is in our own command line, too.
            if any(
                word.endswith(b"autoscaler/v2/monitor.py")
                for word in path.read_bytes().split(b"\0")
            ):
                os.kill(int(path.parent.name), signal.SIGKILL)
    time.sleep(EVERY)


def _body(answer: http.client.HTTPResponse, asked: str, *, fine: Sequence[int]) -> bytes:
    body = answer.read()
    if answer.status >= 400 and answer.status not in fine:
        raise OSError(f"{asked}: {answer.status} {body[:300].decode(errors='replace')}")
    return body


def say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)


ENDINGS: dict[str, Callable[..., None]] = {"docker": docker, "kubernetes": kubernetes, "ec2": ec2}


def main(settings: Settings) -> None:
    """Prove first that it may end what it is to end: who made it looks whether it runs."""
    name = next(name for name in ENDINGS if name in settings)
    ENDINGS[name](settings[name], only_try=True)
    hold(settings, lambda: ENDINGS[name](settings[name]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
