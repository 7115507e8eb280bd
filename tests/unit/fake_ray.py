"""Ray's dashboard, behind HTTP: prepared answers by path; any other question is an error."""

from __future__ import annotations

import json
from typing import Any

import httpx


class FakeRay:
    """A dashboard with these answers, and with log files of its nodes by name.

    It says as Ray does that it lacks a file; with `refusal` it rejects the token. Unprepared
    questions are kept, too: the code under test notes most errors.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.files: dict[str, list[str]] = {}
        self.refusal = ""
        self.unprepared: list[str] = []
        self.runs("2.60.0")

    def runs(self, version: str) -> None:
        self.answers["/api/version"] = {"ray_version": version}

    def has(self, *nodes: dict[str, Any]) -> None:
        self.answers["/api/v0/nodes"] = {"data": {"result": {"result": list(nodes)}}}

    def ran(self, *jobs: dict[str, Any]) -> None:
        self.answers["/api/jobs/"] = list(jobs)
        for job in jobs:
            if job["submission_id"]:
                self.answers[f"/api/jobs/{job['submission_id']}"] = job

    @staticmethod
    def job(name: str, status: str = "RUNNING", **fields: Any) -> dict[str, Any]:
        """Return a job's row in Ray's answer; one of a run, unless `fields` say otherwise."""
        metadata = {"trainyard_run": name}
        row = {"submission_id": name, "status": status, "driver_node_id": "n", "metadata": metadata}
        return row | fields

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
        if self.refusal:
            return _response(401, self.refusal)
        if path == "/api/v0/logs/file":
            return self._file(request.url.params["filename"])
        if path not in self.answers:
            self.unprepared.append(path)
            raise AssertionError(f"unprepared question to Ray: {path}")
        return _response(200, json.dumps(self.answers[path]))

    def _file(self, name: str) -> httpx.Response:
        if name not in self.files:
            return _response(500, f"A file is not found at {name}")
        return _response(200, "\n".join(self.files[name]))


def _response(status: int, text: str) -> httpx.Response:
    # A response that is made with its content counts as read, and cannot be read in pieces.
    return httpx.Response(status, stream=httpx.ByteStream(text.encode()))
