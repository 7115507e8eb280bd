"""Ray's dashboard, behind HTTP: prepared answers by path; any other question is an error."""

from __future__ import annotations

import json
from typing import Any

import httpx


class FakeRay:
    """A dashboard with these answers, and with log files of its nodes by name.

    It says as Ray does that it lacks a file.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.files: dict[str, list[str]] = {}
        self.runs("2.60.0")

    def runs(self, version: str) -> None:
        self.answers["/api/version"] = {"ray_version": version}

    def has(self, *nodes: dict[str, Any]) -> None:
        self.answers["/api/v0/nodes"] = {"data": {"result": {"result": list(nodes)}}}

    @staticmethod
    def node(name: str, state: str = "ALIVE") -> dict[str, Any]:
        """Return a node's row in Ray's answer; the head is the one of that name."""
        return {
            "node_id": name,
            "node_name": name,
            "node_ip": "10.0.0.1",
            "is_head_node": name == "head",
            "state": state,
            "resources_total": {"CPU": 1.0},
        }

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/v0/logs/file":
            return self._file(request.url.params["filename"])
        if path not in self.answers:
            raise AssertionError(f"unprepared question to Ray: {path}")
        return _response(200, json.dumps(self.answers[path]))

    def _file(self, name: str) -> httpx.Response:
        if name not in self.files:
            return _response(500, f"A file is not found at {name}")
        return _response(200, "\n".join(self.files[name]))


def _response(status: int, text: str) -> httpx.Response:
    # A response that is made with its content counts as read, and cannot be read in pieces.
    return httpx.Response(status, stream=httpx.ByteStream(text.encode()))
