"""Ray's REST API, as far as a run needs it: version, nodes, jobs, packages, log files.

Every route was tried on Ray 2.60 (field-notes.md, section 8). The token travels in the Authorization header and
nowhere else; redirects are not followed, so that it cannot be carried to another host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from trainyard.errors import OutsideError
from trainyard.seams.ray_types import Job, Node, Version, job_from, node_from

# Ray's own limit for a package in the GCS (ray/_private/runtime_env/packaging.py, GCS_STORAGE_MAX_SIZE).
PACKAGE_LIMIT = 500 * 1024 * 1024
# The dashboard answers 413 to anything above 100 MiB (DASHBOARD_CLIENT_MAX_SIZE), so that bigger packages go in parts.
PART_LIMIT = 64 * 1024 * 1024

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
# Whoever follows a run asks again soon, and must notice a dead cluster in time.
STATUS_SECONDS = 6.0
# The dashboard reads a whole package before it answers.
UPLOAD_SECONDS = 600.0
# Ray's log service cuts a download off after `timeout` seconds (default 30), however far it came.
DOWNLOAD_SECONDS = 86_400


NOT_ITS_TOKEN = "Is it the token of this cluster? The file of an existing one says where it is read from."  # noqa: S105


class UnreachableError(OutsideError):
    """Nobody answers at the address, or the connection broke."""


class RefusedError(OutsideError):
    """The cluster wants another token."""


class FileMissingError(OutsideError):
    """A node has no log file of that name (yet)."""


class RayApi:
    """A connection to one cluster; use it as a context manager.

    Threads may share it: httpx keeps a pool of connections. `refused` is what to do where the token is refused.
    """

    def __init__(
        self, address: str, token: str | None, *, answer_seconds: float = ANSWER_SECONDS, refused: str = ""
    ) -> None:
        self.address = address.rstrip("/")
        self._refused = refused or NOT_ITS_TOKEN
        # identity: log files come raw, and packed zips are not worth packing twice
        headers = {"Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            base_url=self.address,
            headers=headers,
            timeout=httpx.Timeout(answer_seconds, connect=CONNECT_SECONDS),
            # A proxy from the environment must not get loopback traffic: tunnels end there.
            trust_env=not _is_loopback(self.address),
        )

    def __enter__(self) -> RayApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def version(self) -> Version:
        """Ask who is there; needs the token, so the answer proves that jobs may be submitted."""
        found = self._json("GET", "/api/version")
        return Version(ray=str(found["ray_version"]), session=str(found.get("session_name", "")))

    def nodes(self) -> tuple[Node, ...]:
        """Return every node that Ray remembers, dead ones too, the head first."""
        found = self._json("GET", "/api/v0/nodes", params={"limit": 1000, "detail": 1})
        rows = cast("list[dict[str, Any]]", found["data"]["result"]["result"])
        return tuple(sorted((node_from(row) for row in rows), key=lambda node: (not node.is_head, node.name)))

    def submit(self, entrypoint: str, *, submission_id: str, metadata: Mapping[str, str]) -> None:
        """Start a job with an empty runtime environment (1.2 s; with a working_dir it is 4.2 s)."""
        body = {"entrypoint": entrypoint, "submission_id": submission_id, "metadata": dict(metadata)}
        self._json("POST", "/api/jobs/", content=json.dumps(body), headers={"Content-Type": "application/json"})

    def job(self, submission_id: str) -> Job | None:
        """Return the job, or None if the cluster does not know it."""
        timeout = httpx.Timeout(STATUS_SECONDS, connect=CONNECT_SECONDS)
        answer = self._send("GET", f"/api/jobs/{submission_id}", accept=(404,), timeout=timeout)
        return None if answer.status_code == 404 else job_from(answer.json())

    def jobs(self) -> tuple[Job, ...]:
        """Return every job that was submitted over REST."""
        found = cast("list[dict[str, Any]]", self._json("GET", "/api/jobs/"))
        return tuple(job_from(row) for row in found if row.get("submission_id"))

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end the job: SIGTERM, and SIGKILL some seconds later."""
        self._json("POST", f"/api/jobs/{submission_id}/stop")

    def job_log(self, submission_id: str) -> str:
        """Return what the job's own process wrote, or "" if Ray has lost it."""
        answer = self._send("GET", f"/api/jobs/{submission_id}/logs", accept=(404, 500))
        return str(answer.json().get("logs", "")) if answer.status_code == 200 else ""

    def has_package(self, name: str) -> bool:
        """Say whether the cluster holds the package; this also keeps it there for a while (Ray pins it)."""
        return self._send("GET", f"/api/packages/gcs/{name}", accept=(404,)).status_code == 200

    def put_package(self, name: str, chunks: Iterable[bytes], *, size: int) -> None:
        """Upload a package, streamed."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        timeout = httpx.Timeout(UPLOAD_SECONDS, connect=CONNECT_SECONDS)
        self._send("PUT", f"/api/packages/gcs/{name}", content=chunks, headers=headers, timeout=timeout)

    @contextmanager
    def file(
        self, node_id: str, filename: str, *, last_lines: int | None = None, silence: float = 60.0
    ) -> Iterator[Iterator[bytes]]:
        """Open a file below a node's log directory; yields its bytes, or its last lines, in chunks to the end.

        Ray can also stream a file that grows (/api/v0/logs/stream), but must not be asked to: the dashboard does not
        notice that a client left while the file is quiet, and after 100 such streams answers nobody any more (seen
        with Ray 2.60).

        Raises FileMissingError; UnreachableError when nothing comes for `silence` seconds.
        """
        lines = "-1" if last_lines is None else str(last_lines)
        params = {"node_id": node_id, "filename": filename, "lines": lines, "timeout": str(DOWNLOAD_SECONDS)}
        with self._open("/api/v0/logs/file", params, silence=silence) as answer:
            yield answer.iter_raw()

    @contextmanager
    def _open(self, path: str, params: Mapping[str, str], *, silence: float) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silence)
        try:
            with self._http.stream("GET", path, params=dict(params), timeout=timeout) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self._refuse(answer)
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return self._send(method, path, **request).json()

    def _send(self, method: str, path: str, *, accept: tuple[int, ...] = (), **request: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if answer.status_code != 200 and answer.status_code not in accept:
            self._refuse(answer)
        return answer

    def _refuse(self, answer: httpx.Response) -> None:
        if answer.status_code in (401, 403):
            raise RefusedError(
                f"the cluster refused our token: {_last_line(answer.text)}",
                where=self.address,
                hint=self._refused,
            )
        if "A file is not found at" in answer.text:
            raise FileMissingError(_last_line(answer.text), where=self.address)
        raise OutsideError(
            f"Ray answered {answer.status_code}: {_last_line(answer.text)}",
            where=f"{answer.request.method} {answer.request.url.copy_with(query=None)}",
        )

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        return UnreachableError(
            f"no answer from Ray's dashboard: {str(error) or type(error).__name__}",
            where=self.address,
            hint="Is the cluster up? `invoke cluster.status` says.",
        )


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _last_line(text: str) -> str:
    """Return the last line of an answer: Ray sends whole tracebacks, and the reason stands at their end."""
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else "(nothing)"
