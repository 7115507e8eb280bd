"""A hostile stand-in for Ray's dashboard: it answers with any body, or one without an end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

RUN = "job-20261122-101112-abcd"
NODE = {
    "node_id": "n1",
    "node_name": "head",
    "node_ip": "127.0.0.1",
    "is_head_node": True,
    "state": "ALIVE",
}
HONEST: dict[str, object] = {
    "/": "",
    "/api/version": {"ray_version": "2.60.0", "session_name": "s"},
    "/api/v0/nodes": {"data": {"result": {"result": [NODE]}}},
    "/api/packages": "",
    f"/api/jobs/{RUN}": {"submission_id": RUN, "status": "RUNNING", "driver_node_id": "n1"},
}


class Dashboard(ThreadingHTTPServer):
    """Answer a path with the text, or the object as JSON, given for the longest matching prefix.

    An answer that begins with `endless` is repeated without end.
    """

    daemon_threads = True

    def __init__(self, answers: dict[str, object], *, endless: str = "-") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.endless = answers, endless
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.sent = 0

    def body(self, path: str) -> bytes:
        found = self.answers[
            max((known for known in self.answers if path.startswith(known)), key=len, default="/")
        ]
        return (found if isinstance(found, str) else json.dumps(found)).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        body = self.server.body(path)
        head = b"HTTP/1.0 200 OK\r\n\r\n"
        with suppress(ConnectionError):
            self._send(head + body)
            while path.startswith(self.server.endless):
                self._send(body * (1 + 65_536 // len(body)))

    do_POST = do_PUT = do_GET

    def _send(self, whole: bytes) -> None:
        self.wfile.write(whole)
        self.server.sent += len(whole)

    def log_message(self, format: str, *args: object) -> None:
        """Print no log of requests."""


@contextmanager
def dashboard(answers: dict[str, object], *, endless: str = "-") -> Iterator[Dashboard]:
    """Run a dashboard in a thread of this process."""
    server = Dashboard(answers, endless=endless)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
