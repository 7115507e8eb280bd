"""Who we are to one API server, now: tokens and certificates end, and are asked for again."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import plugin
from trainyard.seams.kube.access import Login
from trainyard.seams.kube.plugin import Credential

# Nothing is used that ends this soon.
SPARE_SECONDS = 10.0


class Credentials:
    """What to log in with; threads may share it."""

    def __init__(self, login: Login, environ: Mapping[str, str]) -> None:
        self._login = login
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._now: Credential | None = None

    def now(self) -> Credential:
        """Return what to log in with. Raises PrerequisiteError if it cannot be had."""
        with self._lock:
            if self._now is None or _ends_soon(self._now):
                self._now = self._fetch()
            return self._now

    def renew(self, refused: Credential) -> bool:
        """Ask again for a credential that the server refused; say whether there is another one now."""
        with self._lock:
            if self._now == refused:
                self._now = self._fetch()
            return self._now != refused

    def headers(self, credential: Credential) -> list[tuple[str, str]]:
        """Return the headers that say who we are."""
        headers = list(self._login.impersonate)
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        elif self._login.basic:
            encoded = base64.b64encode(":".join(self._login.basic).encode()).decode()
            headers.append(("Authorization", f"Basic {encoded}"))
        return headers

    def _fetch(self) -> Credential:
        login = self._login
        # The order is client-go's: what is in a file is newer than what stands in the kubeconfig.
        if login.token_file:
            return Credential(_read(login), login.certificate, login.key)
        if login.token or login.plugin is None:
            return Credential(login.token, login.certificate, login.key)
        given = plugin.run(login.plugin, self._environ)
        return given if given.certificate else replace(given, certificate=login.certificate, key=login.key)


def _read(login: Login) -> str | None:
    try:
        return login.token_file.read_text().strip() if login.token_file else None
    except OSError as error:
        if login.token:
            return login.token
        raise PrerequisiteError(
            f"the token for the Kubernetes API cannot be read: {error.strerror}", where=str(login.token_file)
        ) from error


def _ends_soon(credential: Credential) -> bool:
    return credential.ends is not None and credential.ends - time.time() < SPARE_SECONDS
