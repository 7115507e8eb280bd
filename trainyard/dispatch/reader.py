"""Read a run's stream from the cluster: line by line, over lost connections, without a gap."""

from __future__ import annotations

import json
import queue
import threading
import time
from contextlib import suppress

from trainyard_runner import names

from trainyard.errors import OutsideError
from trainyard.seams.ray_api import FileMissingError, LiveFile, RayApi

# Batches of lines that wait for whoever shows them; a chunk is 64 KiB, so that this bounds the memory.
_BATCHES = 64
_RETRY_FIRST = 0.2
_RETRY_LAST = 2.0
_MISSING = 0.1


class StreamReader:
    """Reads in a thread; `lines` gives batches in order.

    A lost connection is made again, with back-off; a segment is then read again from its beginning, and as many bytes
    are skipped as were handed out before (Ray's log route has no offset).
    """

    def __init__(self, ray: RayApi, run: str, node_id: str, *, segment: int) -> None:
        self._ray = ray
        self._directory = names.run_directory(run)
        self._node_id = node_id
        self._segment = segment
        self._handed_out = 0
        self._batches: queue.Queue[list[bytes]] = queue.Queue(_BATCHES)
        self._live: LiveFile | None = None
        self._stopped = threading.Event()
        self._retry = _RETRY_FIRST
        self.problem: OutsideError | None = None
        self.last_contact = self.last_bytes = time.monotonic()
        self._thread = threading.Thread(target=self._read, name=f"stream of {run}", daemon=True)
        self._thread.start()

    def lines(self, *, wait: float) -> list[bytes]:
        """Return the next batch of lines, or nothing if none came in time (in seconds)."""
        try:
            return self._batches.get(timeout=wait)
        except queue.Empty:
            return []

    @property
    def idle(self) -> bool:
        """Say whether everything that was read has been taken."""
        return self._batches.empty()

    def reconnect(self) -> None:
        """Drop a connection that may be dead without saying so."""
        if self._live:
            self._live.cut()

    def close(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self.reconnect()

    def _read(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._ray.live_file(self._node_id, self._filename()) as live:
                    self._live = live
                    self._take(live)
            except FileMissingError:
                # The runner has not written it yet.
                self._contact()
                self._stopped.wait(_MISSING)
            except OutsideError as error:
                self.problem = error
                self._stopped.wait(self._retry)
                self._retry = min(_RETRY_LAST, self._retry * 2)
            finally:
                self._live = None

    def _filename(self) -> str:
        return f"{self._directory}/{names.segment(self._segment)}"

    def _take(self, live: LiveFile) -> None:
        """Hand out whole lines until the segment says where it continues, or the connection ends."""
        skip, rest = self._handed_out, b""
        for chunk in live.chunks:
            self._contact()
            self.last_bytes = self.last_contact
            skipped = min(skip, len(chunk))
            skip -= skipped
            rest += chunk[skipped:]
            end = rest.rfind(b"\n") + 1
            if end == 0:
                continue
            lines, rest = rest[:end].splitlines(keepends=True), rest[end:]
            self._hand_out(lines)
            self._handed_out += end
            if _continues(lines[-1]):
                self._segment, self._handed_out = self._segment + 1, 0
                return
            if self._stopped.is_set():
                return
        # The stream has no end of its own: Ray, or something between, closed it.
        self._stopped.wait(self._retry)

    def _hand_out(self, lines: list[bytes]) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._batches.put(lines, timeout=0.5)
                return

    def _contact(self) -> None:
        self.problem, self._retry, self.last_contact = None, _RETRY_FIRST, time.monotonic()


def _continues(line: bytes) -> bool:
    return len(line) < 300 and b'"continues"' in line and json.loads(line).get("event") == "continues"
