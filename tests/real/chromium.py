"""A real headless Chromium, driven through its DevTools protocol.

The protocol runs over a pipe, which needs neither a port nor a driver program.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INSTALL = "apt-get install -y chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = [
    "--headless",
    "--no-sandbox",  # containers run tests as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
# The browser reads commands from descriptor 3 and writes answers to 4: a new process moves the
# pipes there, then becomes the browser.
_MOVE_PIPES = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """Return the path of this machine's browser, None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser; it records the requests made and the errors in the console."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]

        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of this size."""
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

        self.requests, self.errors = [], []
        with self.loads():
            self.call("Page.navigate", url=path.resolve().as_uri())

    @contextmanager
    def loads(self) -> Iterator[None]:
        """Wait, when the block ends, until the page has been loaded and drawn."""
        self._loaded = False
        yield
        while not self._loaded:
            self._take(self._read())
        # Two frames later the page's observers of sizes have been called.
        self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(true))))"
        )

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer; process events that come before the answer."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and told["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str(told["args"]))

    def _read(self) -> dict[str, Any]:
        give_up = time.monotonic() + 60
        while b"\0" not in self._unread:
            ready, _, _ = select.select(
                [self._answers], [], [], max(0.0, give_up - time.monotonic())
            )
            block = os.read(self._answers, 1 << 20) if ready else b""
            if not block:
                raise AssertionError(
                    "the browser does not answer" if not ready else "the browser ended"
                )
            self._unread += block
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """Start a browser with a new profile; yield one page of it."""
    commands_in, commands_out = os.pipe()
    answers_in, answers_out = os.pipe()
    mover = [sys.executable, "-c", _MOVE_PIPES, str(commands_in), str(answers_out)]

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [*mover, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands_in, answers_out),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )

        os.close(commands_in)
        os.close(answers_out)

        try:
            yield Page(commands_out, answers_in)
        finally:
            os.close(commands_out)  # the browser ends when this pipe closes
            os.close(answers_in)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
