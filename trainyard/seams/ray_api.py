"""Ray's REST API for runs: version, nodes, jobs, packages and log files.

Every route was tried on Ray 2.60. The token travels in the Authorization header
and nowhere else. Redirects are not followed, so that no other host gets the
token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx
from trainyard_runner.wire.driver import left_in_words
from trainyard_runner.wire.text import last_line

from trainyard import versions
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.addresses import is_loopback, proxy_of
from trainyard.seams.ray_types import (
    Amounts,
    Job,
    Node,
    host_names_from,
    job_from,
    left_from,
    nodes_from,
    usage_from,
    version_from,
)
from trainyard.seams.threads import within

# Ray's own limit for a package in the GCS (ray/_private/runtime_env/packaging.py,
# GCS_STORAGE_MAX_SIZE).
PACKAGE_LIMIT = 500 * 1024 * 1024
# The dashboard answers 413 to anything above 100 MiB (DASHBOARD_CLIENT_MAX_SIZE), so larger
# packages go in parts.
PART_LIMIT = 64 * 1024 * 1024

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
# This is short because a followed run is polled again soon, and a dead cluster must be noticed.
STATUS_SECONDS = 6.0
# The time for one part of a package at 20 KB/s. The dashboard answers after the whole part.
UPLOAD_SECONDS = 3600.0
# The parameter `timeout` of Ray's log service (default 30): a download ends after this time, even
# while bytes come.
DOWNLOAD_SECONDS = 86_400
# The bytes of a log file that Ray's agent sends at once (log_agent.py, BLOCK_SIZE).
BLOCK = 1 << 16
# The largest answer that is accepted, in bytes. The answer for 1,000 nodes has 3 MiB.
ANSWER_LIMIT = 16 * 1024 * 1024

Result = TypeVar("Result")

NOT_ITS_TOKEN = (
    "Is it the token of this cluster? `existing:` in a cluster file says where a token is read."  # noqa: S105
)


class UnreachableError(OutsideError):
    """No answer comes from the address, or the connection broke."""


class NotRayError(OutsideError):
    """A server that is not Ray's dashboard answers at the address."""


class RefusedError(OutsideError):
    """The cluster rejected the token."""


class FileMissingError(OutsideError):
    """A node has no log file of that name (yet)."""


def without_marks(
    chunks: Iterator[bytes], *, refuse: Callable[[bytes], NoReturn]
) -> Iterator[bytes]:
    """Yield a log file without the marks that old dashboards put before blocks.

    The mark is 1, or 0 before an error (state_head.py, formatter_leading_1, of
    Ray 2.44.1). Every block but the last has BLOCK bytes, even if the file
    grows, because the agent reads the file's size once. `refuse` is called with
    the error's text.
    """
    left = 0
    for chunk in chunks:
        while chunk:
            if left == 0 and chunk.startswith(b"0"):
                refuse(chunk[1:] + b"".join(chunks))

            if left == 0:
                chunk = chunk[1:]
                left = BLOCK

            block = chunk[:left]
            yield block
            left -= len(block)
            chunk = chunk[len(block) :]


class RayApi:
    """A connection to one cluster; use it as a context manager.

    Threads may share it: httpx keeps a pool of connections. `refused` is the
    hint for a rejected token.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        refused: str = "",
    ) -> None:
        self.address = address.rstrip("/")
        self._refused = refused or NOT_ITS_TOKEN
        self._seconds = answer_seconds
        self._version = ""

        # "identity" keeps log files raw; zips gain nothing from a second compression.
        headers = {"Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"

        self._http = httpx.Client(
            base_url=self.address,
            headers=headers,
            # A proxy from the environment must not get loopback traffic, because tunnels end there.
            trust_env=not is_loopback(urlsplit(self.address).hostname or ""),
            # Plain HTTP needs no certificates, which take 25 ms to load.
            verify=self.address.startswith("https:"),
        )

    def __enter__(self) -> RayApi:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def version(self) -> str:
        """Return Ray's version, if Ray accepts this token for jobs."""
        return self._ask("GET", "/api/version", version_from)

    def supported_version(self) -> str:
        """Return Ray's version. Raises PrerequisiteError if it is too old."""
        version = self.version()
        if versions.is_too_old(version):
            oldest = versions.OLDEST_RAY
            raise PrerequisiteError(
                f"Ray {version} runs on this cluster, and the oldest supported version is {oldest}",
                where=self.address,
                hint="Ask the owner of the cluster for a newer Ray; docs/existing.md lists what "
                "was tried.",
            )
        return version

    def nodes(self) -> tuple[Node, ...]:
        """Return every node, even a dead one, with the head first."""
        nodes = self._ask("GET", "/api/v0/nodes", nodes_from, params={"limit": 1000, "detail": 1})
        return tuple(sorted(nodes, key=lambda node: (not node.is_head, node.name)))

    def host_names(self) -> dict[str, str]:
        """Return each living node's host name, by node id."""
        return self._ask("GET", "/nodes", host_names_from, params={"view": "summary"})

    def submit(
        self,
        entrypoint: str,
        *,
        submission_id: str,
        metadata: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> None:
        """Start a job with these variables in its environment.

        This takes 1.2 s. With a working_dir, it would take 4.2 s.
        """
        body = {
            "entrypoint": entrypoint,
            "submission_id": submission_id,
            "metadata": dict(metadata),
            "runtime_env": {"env_vars": dict(variables)},
        }
        self._ask("POST", "/api/jobs/", lambda answer: str(answer["submission_id"]), json=body)

    def job(self, submission_id: str) -> Job | None:
        path = f"/api/jobs/{submission_id}"
        body = self._get(path, seconds=STATUS_SECONDS)
        if body is None:
            return None
        return self._read(path, body, job_from)

    def jobs(self) -> tuple[Job, ...]:
        """Return every job, and every driver that was never submitted."""
        return self._ask("GET", "/api/jobs/", lambda answer: tuple(map(job_from, answer)))

    def left_by(self, drivers: Collection[str]) -> str:
        """Say how many detached actors and placement groups remain, if any."""
        actors = self.living("actors", "DEAD", left_from("job_id", drivers))
        groups = self.living("placement_groups", "REMOVED", left_from("creator_job_id", drivers))
        return left_in_words(actors, groups)

    def living(self, kind: str, dead: str, read: Callable[[Any], Result]) -> Result:
        """Read up to 10,000 rows of `kind` whose state is not `dead`."""
        filters = {"filter_keys": "state", "filter_predicates": "!=", "filter_values": dead}
        params = {"limit": 10_000, "detail": 1, **filters}
        return self._ask("GET", f"/api/v0/{kind}", read, params=params)

    def usage(self) -> dict[str, tuple[Amounts, Amounts]]:
        return self._ask("GET", "/nodes", usage_from, params={"view": "summary"})

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end the job: SIGTERM, and SIGKILL some seconds later."""
        self._ask("POST", f"/api/jobs/{submission_id}/stop", lambda answer: bool(answer["stopped"]))

    def has_package(self, name: str) -> bool:
        """Say whether the cluster has the package, which Ray then pins."""
        return self._get(f"/api/packages/gcs/{name}") is not None

    def put_package(self, name: str, content: bytes) -> None:
        path = f"/api/packages/gcs/{name}"
        headers = {"Content-Type": "application/octet-stream"}
        self._send("PUT", path, content=content, headers=headers, seconds=UPLOAD_SECONDS)

    @contextmanager
    def file(
        self, node_id: str, filename: str, *, last_lines: int | None = None, silence: float = 60.0
    ) -> Iterator[Iterator[bytes]]:
        """Yield the chunks of a file, or of its last lines, from a node's logs.

        `filename` is relative to the node's log directory. /api/v0/logs/stream,
        which follows a growing file, is not used. While the file is quiet, the
        dashboard does not notice that a client left, and after 100 such streams
        it answers no client any more (seen with Ray 2.60).

        Raises FileMissingError; UnreachableError when nothing comes for
        `silence` seconds.
        """
        params = {
            "node_id": node_id,
            "filename": filename,
            "lines": "-1" if last_lines is None else str(last_lines),
            "timeout": str(DOWNLOAD_SECONDS),
        }

        with self._open("GET", "/api/v0/logs/file", seconds=silence, params=params) as answer:
            if answer.status_code != 200:
                self._refuse(answer, self._body(answer, silence))

            chunks = answer.iter_raw()
            if self._marks_files():
                chunks = without_marks(chunks, refuse=lambda error: self._refuse(answer, error))
            yield chunks

    def _marks_files(self) -> bool:
        self._version = self._version or self.version()
        return versions.marks_log_files(self._version)

    def _ask(self, method: str, path: str, read: Callable[[Any], Result], **request: Any) -> Result:
        """Send a request, and return what `read` makes of the JSON answer."""
        return self._read(path, self._send(method, path, **request)[1], read)

    def _read(self, path: str, body: bytes, read: Callable[[Any], Result]) -> Result:
        try:
            return read(json.loads(body))

        # The answer is not JSON, or has another shape or types. 10,000 nested lists would raise
        # RecursionError.
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            if body.strip():
                beginning = repr(body[:40].decode("utf-8", "replace"))
            else:
                beginning = "nothing"

            raise self._stranger(f"{path} gave {beginning}") from error

    def _get(self, path: str, **request: Any) -> bytes | None:
        """Return the answer; None if Ray says that the object does not exist.

        Raises NotRayError for a 404 without Ray's own text, because any server
        may send that.
        """
        status, body = self._send("GET", path, accept=(404,), **request)
        if status != 404:
            return body
        if b"does not exist" not in body:
            raise self._stranger(f"{path} gave 404")
        return None

    def _send(
        self,
        method: str,
        path: str,
        *,
        seconds: float | None = None,
        accept: tuple[int, ...] = (),
        **request: Any,
    ) -> tuple[int, bytes]:
        """Return status and body if the status is 200 or in `accept`."""
        seconds = seconds or self._seconds
        with self._open(method, path, seconds=seconds, **request) as answer:
            body = self._body(answer, seconds)
            if answer.status_code != 200 and answer.status_code not in accept:
                self._refuse(answer, body)
            return answer.status_code, body

    @contextmanager
    def _open(
        self, method: str, path: str, *, seconds: float, **request: Any
    ) -> Iterator[httpx.Response]:
        """Send a request; yield the answer, which must begin in `seconds`."""
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        http_request = self._http.build_request(method, path, timeout=timeout, **request)

        try:
            answer = within(seconds, lambda: self._http.send(http_request, stream=True))
            with closing(answer):
                yield answer
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _body(self, answer: httpx.Response, seconds: float) -> bytes:
        """Return an answer's body.

        Raises NotRayError if the body is too long, TimeoutError if it is too
        late.
        """
        give_up = time.monotonic() + seconds
        body = bytearray()
        for chunk in answer.iter_raw():
            body += chunk
            if len(body) > ANSWER_LIMIT:
                raise self._stranger(f"more than {ANSWER_LIMIT >> 20} MiB of answer")
            if time.monotonic() > give_up:
                raise TimeoutError(f"the answer took longer than {seconds:g} s")

        return bytes(body)

    def _refuse(self, answer: httpx.Response, body: bytes) -> NoReturn:
        # Ray sends whole tracebacks; the reason is their last line.
        reason = last_line(body.decode("utf-8", "replace"))[:500] or "(nothing)"
        if answer.status_code in (401, 403):
            message = f"the cluster rejected the token: {reason}"
            raise RefusedError(message, where=self.address, hint=self._refused)

        if b"A file is not found at" in body:
            raise FileMissingError(reason, where=self.address)

        raise OutsideError(
            f"Ray answered {answer.status_code}: {reason}",
            where=f"{answer.request.method} {answer.request.url.copy_with(query=None)}",
        )

    def _stranger(self, reason: str) -> NotRayError:
        return NotRayError(
            f"the server at {self.address} is not Ray's dashboard: {reason}",
            hint="Does another program listen there? The cluster file says the address, or the "
            "backend has chosen it.",
        )

    def _unreachable(self, error: Exception) -> UnreachableError:
        what = f"no answer from Ray's dashboard: {str(error) or type(error).__name__}"

        proxy = ""
        if self._http.trust_env:
            proxy = proxy_of(self.address)
        if not proxy:
            hint = "Is the cluster up? Its state: trainyard cluster.status"
            return UnreachableError(what, where=self.address, hint=hint)

        where = f"{self.address}, through the proxy {proxy}"
        hint = (
            "Is that proxy right? If the cluster is reached without a proxy: export "
            f"no_proxy={self._http.base_url.host}"
        )
        return UnreachableError(what, where=where, hint=hint)


def ray_of(endpoint: Endpoint) -> RayApi:
    return RayApi(endpoint.address, endpoint.token, refused=endpoint.refused)
