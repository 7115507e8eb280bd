"""The leash: removes its cluster at a deadline, or after a time without jobs.

The leash runs next to the head and does not need the operator's machine. Only
this file is copied there: it uses the standard library, and boto3 on EC2. Ray's
dashboard lists the active jobs. While the dashboard does not answer, the
cluster does not count as idle; the deadline still applies.

Usage: leash.py SETTINGS, a JSON object with these keys. `deadline` (Unix
seconds) and `idle` (seconds) may be null. `dashboard` is the dashboard's
address, `token_file` has its token. One of `docker`, `kubernetes` and `ec2` has
the arguments of the function in `ENDINGS` that removes the cluster. Once
active, the leash creates the file `ready`, if that is set.
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
# Ray's API cannot tell a job why it is stopped: the leash uploads a package of this name, which
# runners look for.
MARK = "trainyard-leash.zip"
# Seconds for stopped jobs to end: Ray gives a stopped runner 8 s to bring outputs to the head.
STOP_WITHIN = 15.0
# After STOP_WITHIN, the operator's machine has this many seconds to fetch outputs from the head.
FETCH_WITHIN = 10.0
GOING = ("PENDING", "RUNNING")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def ends_at(deadline: float | None, idle: float | None, idle_since: float | None) -> float | None:
    """Return when the cluster ends if nothing changes; None for no end yet.

    The result is in Unix seconds. `idle_since`: None while jobs are active, or
    while this is unknown.
    """
    if idle is None or idle_since is None:
        return deadline
    idle_end = idle_since + idle
    if deadline is None:
        return idle_end
    return min(deadline, idle_end)


def idle_since(jobs: Jobs | None, since: float) -> float | None:
    """Return when the last job ended, or `since` if that is later.

    Returns None while a job is active, and if `jobs` is None (unknown).
    """
    if jobs is None or any(job["status"] in GOING for job in jobs):
        return None
    ends = [(job.get("end_time") or 0) / 1000 for job in jobs]  # milliseconds
    return max([since, *ends])


def hold(settings: Settings, end: Callable[[], None]) -> None:
    """Wait until the cluster has to end; then stop its jobs, and call `end`.

    Repeats `end` until it succeeds. First prints HOLDS, and creates the
    settings' file `ready`.
    """
    ask = dashboard(settings["dashboard"], settings["token_file"])
    began = time.time()
    # The command that started the leash waits for this line, or for the file.
    say(HOLDS)
    ready = settings.get("ready")
    if ready:
        Path(ready).touch()

    while True:
        jobs = None
        if settings["idle"] is not None:
            jobs = ask("GET", JOBS)
        moment = ends_at(settings["deadline"], settings["idle"], idle_since(jobs, began))
        left = EVERY
        if moment is not None:
            left = min(EVERY, moment - time.time())
        if left <= 0:
            break
        time.sleep(left)

    say("the leash ends this cluster")
    _stop_jobs(ask)
    while True:
        try:
            return end()
        except Exception as error:
            # Any error is retried: a cluster that does not end costs money.
            say(f"not ended yet: {error}")
            time.sleep(EVERY)


def _stop_jobs(ask: Ask) -> None:
    active = _active(ask)
    ask("PUT", f"/api/packages/gcs/{MARK}")
    if not active:
        return

    for job in active:
        name = job["submission_id"]
        # A driver that was not submitted as a job has no submission id, and ends with the nodes.
        if name:
            say(f"stop {name}")
            ask("POST", f"{JOBS}{name}/stop")

    give_up = time.time() + STOP_WITHIN
    while time.time() < give_up and _active(ask):
        time.sleep(0.5)
    time.sleep(FETCH_WITHIN)


def _active(ask: Ask) -> Jobs:
    jobs = ask("GET", JOBS) or []
    return [job for job in jobs if job["status"] in GOING]


def dashboard(address: str, token_file: str | None) -> Ask:
    """Return a function that calls Ray's dashboard, and returns the JSON.

    The function returns None without a valid answer. The token is read at once:
    its directory may be gone later.
    """
    headers = {}
    if token_file:
        token = Path(token_file).expanduser().read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}

    # A proxy from the environment would see the token.
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
    """Remove a cluster's containers and network; named volumes stay.

    `target`: `labels` of all the cluster's containers; `network`; `me`, the
    name of the container in which the leash runs (removed last); `socket` of
    the Docker engine. With `only_try`, only lists the containers.
    """
    filters = urllib.parse.quote(json.dumps({"label": list(target["labels"])}))
    containers = json.loads(_engine(target, "GET", f"/containers/json?all=1&filters={filters}"))
    if only_try:
        return

    for container in containers:
        if f"/{target['me']}" not in (container["Names"] or ()):
            _engine(target, "DELETE", f"/containers/{container['Id']}?force=1&v=1")

    leave = {"Container": target["me"], "Force": True}
    _engine(target, "POST", f"/networks/{target['network']}/disconnect", leave)
    # 403: another container is still in the network.
    _engine(target, "DELETE", f"/networks/{target['network']}", fine=(403, 404))
    _engine(target, "DELETE", f"/containers/{target['me']}?force=1&v=1")


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
    """Send a request to the Docker engine; a status in `fine` is no error."""
    connection = _Socket(target["socket"])
    # Without this header, http.client would send the socket's path as the host's name.
    headers = {"Host": "docker", "Content-Type": "application/json"}
    content = None
    if body is not None:
        content = json.dumps(body)
    connection.request(method, path, content, headers)
    return _body(connection.getresponse(), f"{method} {path}", fine=fine)


def kubernetes(target: Settings, *, only_try: bool = False) -> None:
    """Delete the RayCluster `name` in `namespace` with its dependents.

    Only the RayCluster with the uid `uid` is deleted. `only_try` is a dry run.
    A RayCluster that is gone or was recreated is no error.
    """
    # Python 3.13 rejects CAs without keyUsage (canonical/microk8s#4864).
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=60, context=trusted)

    path = f"/apis/ray.io/v1/namespaces/{target['namespace']}/rayclusters/{target['name']}"
    options = {"propagationPolicy": "Foreground", "preconditions": {"uid": target["uid"]}}
    if only_try:
        # If there is a body, the API server ignores the query's dryRun.
        options["dryRun"] = ["All"]
    # Read at each call: kubelets replace the token.
    token = (_ACCOUNT / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("DELETE", path, json.dumps(options), headers)
    _body(connection.getresponse(), f"DELETE {path}", fine=(404, 409))


def ec2(target: Settings, *, only_try: bool = False) -> None:
    """Terminate the instances in `region` with all `tags`, the head last.

    The head runs this function. Uses boto3, which Ray's autoscaler needs too.
    `only_try` is a dry run.
    """
    import boto3
    from botocore.exceptions import ClientError

    api = boto3.client("ec2", region_name=target["region"])
    if only_try:
        try:
            api.terminate_instances(InstanceIds=list(_instances(api, target["tags"])), DryRun=True)
        except ClientError as error:
            if error.response["Error"]["Code"] != "DryRunOperation":
                raise
        return

    _kill_autoscaler()
    while True:
        instances = _instances(api, target["tags"])
        workers = [instance for instance, is_head in instances.items() if not is_head]
        if not workers:
            break
        api.terminate_instances(InstanceIds=workers)
        time.sleep(1)

    api.terminate_instances(InstanceIds=list(instances))


def _instances(api: Any, tags: Settings) -> dict[str, bool]:
    """Return the instances' ids, each with whether the instance is the head."""
    states = ["pending", "running", "stopping", "stopped"]
    filters = [{"Name": "instance-state-name", "Values": states}]
    for key, value in tags.items():
        filters.append({"Name": f"tag:{key}", "Values": [value]})

    found = {}
    for page in api.get_paginator("describe_instances").paginate(Filters=filters):
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                is_head = {"Key": "ray-node-type", "Value": "head"} in instance["Tags"]
                found[instance["InstanceId"]] = is_head
    return found


def _kill_autoscaler() -> None:
    """Kill Ray's autoscaler, which would launch new workers.

    Then wait EVERY seconds: by then, AWS lists the instances that the
    autoscaler requested last.
    """
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            # Only ends of words are compared: this process's command line also has the text.
            if any(word.endswith(b"autoscaler/v2/monitor.py") for word in words):
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
    """Check by a dry run that the cluster can be ended; end it when it is due.

    If the check raises, the program exits, and the command that started it
    reports the error.
    """
    name = next(name for name in ENDINGS if name in settings)
    ENDINGS[name](settings[name], only_try=True)
    hold(settings, lambda: ENDINGS[name](settings[name]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
