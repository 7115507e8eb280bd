"""Read a run's stream line by line, without gaps even if connections break.

Ray's route for log files takes no offset, but can send the last N lines of a
file. Every line of the stream has a number, by which the reader recognizes
lines that it has read before.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from trainyard_runner.wire import names, stream

from trainyard.errors import OutsideError
from trainyard.seams.ray_api import FileMissingError, RayApi

# At most this many batches, of 64 KiB each, wait for the follower.
_BATCHES = 64
# Seconds between two requests: _SOON after new lines, longer after each request without any, up to
# _LATE. A request fails after _SILENCE seconds without a byte.
_SOON = 0.1
_LATE = 0.5
_SILENCE = 15.0
# Request at least this many last lines. If more are new, a second request reads the whole segment.
_FEW = 8
# Bytes. A segment ends with the line that makes it reach ROLL_AT.
_LONGEST_SEGMENT = stream.ROLL_AT + stream.LONGEST_LINE


class StreamReader:
    """Polls a run's stream in a thread; `lines` returns new lines in order.

    A stream is a series of files, the segments, in the run's directory on its
    node. Reading begins at segment number `segment`. `problem` is the error of
    the last request, None if it succeeded. `last_contact` is when the last
    bytes came (time.monotonic).
    """

    def __init__(self, ray: RayApi, run: str, node_id: str, *, segment: int) -> None:
        self._ray = ray
        self._directory = names.run_directory(run)
        self._node_id = node_id
        self._segment = segment
        self._next = 0
        # The next request asks for this many last lines of the segment, which probably include all
        # new ones; None asks for all lines.
        self._guess: int | None = None
        self._batches: queue.Queue[list[bytes]] = queue.Queue(_BATCHES)
        self._malformed: OutsideError | None = None
        self._stopped = threading.Event()
        self.problem: OutsideError | None = None
        self.last_contact = time.monotonic()
        # When the latest request that reached the stream's end was sent (time.monotonic).
        self._all_read_at = 0.0
        self._thread = threading.Thread(target=self._read, name=f"stream of {run}", daemon=True)
        self._thread.start()

    def lines(self, *, wait: float) -> list[bytes]:
        """Return the next batch of lines, [] if none comes in `wait` seconds.

        Raises OutsideError if the file is not the stream of a runner. A failed
        request raises nothing: see `problem`.
        """
        try:
            return self._batches.get(timeout=wait)
        except queue.Empty:
            if self._malformed:
                raise self._malformed from None
            return []

    def has_read_all_of(self, moment: float) -> bool:
        """Say whether `lines` has returned all lines written by `moment`."""
        return self._all_read_at > moment and self._batches.empty()

    def close(self) -> None:
        self._stopped.set()

    def _read(self) -> None:
        pause = _SOON
        while not self._stopped.is_set():
            asked = time.monotonic()
            news = 0
            try:
                news = self._ask()
            except FileMissingError:
                # The runner has not written the segment yet.
                self._contact()
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                self._malformed = OutsideError(
                    f"the run's stream is malformed: {error}",
                    where=f"{self._ray.address}, node {self._node_id}, {self._directory}",
                    hint="Does the address lead to the cluster that the run is on?",
                )
                return
            except RuntimeError:
                # httpx raises it if the follower has closed this reader and the connection.
                if not self._stopped.is_set():
                    raise
                return
            except OutsideError as error:
                self.problem = error
                pause = min(_LATE, pause * 2)
                self._stopped.wait(pause)
                continue

            if news and self._guess is None:
                # Read the next segment, or the rest of this one, without a pause.
                continue

            self._all_read_at = asked
            pause = _SOON if news else min(_LATE, pause * 1.3)
            self._stopped.wait(pause)

    def _ask(self) -> int:
        """Queue the segment's new lines; return how many there were."""
        filename = f"{self._directory}/{names.segment(self._segment)}"
        guess = self._guess
        news = 0

        with self._ray.file(self._node_id, filename, last_lines=guess, silence=_SILENCE) as chunks:
            for lines in self._whole_lines(chunks):
                first = _seq(lines[0])
                if guess and first > self._next:
                    # More lines are new than were requested: read the segment from its beginning.
                    self._guess = None
                    return self._ask()

                fresh = lines[max(0, self._next - first) :]
                news += len(fresh)
                if fresh and self._hand_out(fresh):
                    self._guess = None
                    return news

        self._guess = max(_FEW, 2 * news)
        return news

    def _whole_lines(self, chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
        """Yield each chunk's whole lines; drop a last line without newline."""
        rest = b""
        read = 0
        for chunk in chunks:
            self._contact()
            read += len(chunk)
            rest += chunk
            if read > _LONGEST_SEGMENT or len(rest) > stream.LONGEST_LINE:
                raise ValueError("a line or the file is longer than the runner writes")

            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end].splitlines(keepends=True)
                rest = rest[end:]

            if self._stopped.is_set():
                return

    def _hand_out(self, lines: list[bytes]) -> bool:
        """Queue lines once there is room; say whether they end the segment."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._batches.put(lines, timeout=0.5)
                break
        self._next = _seq(lines[-1]) + 1
        ends = _ends_segment(lines[-1])
        self._segment += ends
        return ends

    def _contact(self) -> None:
        self.problem = None
        self.last_contact = time.monotonic()


def _seq(line: bytes) -> int:
    return int(json.loads(line)["seq"])


def _ends_segment(line: bytes) -> bool:
    # The line that ends a segment is short; most others, which are output, are not parsed.
    may_end = len(line) < 300 and b'"continues"' in line
    return may_end and json.loads(line).get("event") == "continues"
