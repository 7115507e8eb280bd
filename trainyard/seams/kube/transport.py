"""HTTP to one Kubernetes API server: logged in, with a deadline, tried again where that is safe."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from trainyard.seams.kube import proxies, refusals, tls
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.credentials import Credentials
from trainyard.seams.kube.plugin import Credential
from trainyard.seams.kube.refusals import Doing

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
# A server that has too much to do says when to come again; it is believed up to this.
PAUSE_SECONDS = 3.0
TRIES = 4

# A connection that was kept from an earlier question, and that the server or a proxy has closed meanwhile.
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class Transport:
    """Connections to one server; threads may share it."""

    def __init__(self, access: Access, environ: Mapping[str, str]) -> None:
        self.access = access
        self.proxy = proxies.proxy_for(access.server, environ, named=access.proxy)
        self._credentials = Credentials(access.login, environ)
        self._lock = threading.Lock()
        self._context: tuple[tuple[bytes | None, bytes | None], ssl.SSLContext] | None = None
        self._http: tuple[ssl.SSLContext, httpx.Client] | None = None

    def send(
        self,
        method: str,
        path: str,
        doing: Doing,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: tuple[int, ...] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> httpx.Response:
        """Return the server's answer; `accept` are statuses besides 2xx. Raises KubeError, PrerequisiteError."""
        stale_once = method == "GET"
        for left in range(TRIES, 0, -1):
            credential = self._credentials.now()
            try:
                answer = self._client(credential).request(
                    method,
                    path,
                    params=params,
                    content=None if body is None else json.dumps(body),
                    headers=self._headers(credential, content_type),
                    timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
                    extensions=self._extensions(),
                )
            except _STALE as error:
                if not stale_once:
                    raise refusals.unreachable(error, self.access, self.proxy) from error
                stale_once = False
                continue
            except (httpx.HTTPError, OSError) as error:
                raise refusals.unreachable(error, self.access, self.proxy) from error
            if answer.is_success or answer.status_code in accept:
                return answer
            if left == 1 or not self._worth_another(answer, credential):
                break
        raise refusals.refused(answer.status_code, answer.content, doing, self.access)

    @contextmanager
    def stream(self, path: str, doing: Doing, *, params: Mapping[str, str]) -> Iterator[Iterator[str]]:
        """Open an answer that goes on; yields its lines as they come, however long it is quiet meanwhile."""
        credential = self._credentials.now()
        try:
            with self._client(credential).stream(
                "GET",
                path,
                params=params,
                headers=self._headers(credential),
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=None),
                extensions=self._extensions(),
            ) as answer:
                if not answer.is_success:
                    raise refusals.refused(answer.status_code, answer.read(), doing, self.access)
                yield answer.iter_lines()
        except (httpx.HTTPError, OSError) as error:
            raise refusals.unreachable(error, self.access, self.proxy) from error

    def door(self) -> tuple[list[tuple[str, str]], ssl.SSLContext | None]:
        """Return the headers and the TLS context for a connection that somebody else makes."""
        credential = self._credentials.now()
        secure = self.access.server.startswith("https:")
        return self._headers(credential), self._tls(credential) if secure else None

    def renew(self) -> bool:
        """Log in again after a refusal; say whether there is anything else to try."""
        return self._credentials.renew(self._credentials.now())

    def _worth_another(self, answer: httpx.Response, credential: Credential) -> bool:
        """Say whether the same request may be answered now: after a new login, or the pause that the server asks for."""
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return self._credentials.renew(credential)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            asked = answer.headers.get("Retry-After", "")
            time.sleep(min(float(asked) if asked.isdigit() else 1.0, PAUSE_SECONDS))
            return True
        return False

    def _headers(self, credential: Credential, content_type: str = "") -> list[tuple[str, str]]:
        headers = [("User-Agent", "trainyard"), *self._credentials.headers(credential)]
        return [*headers, ("Content-Type", content_type)] if content_type else headers

    def _extensions(self) -> dict[str, Any]:
        return {"sni_hostname": self.access.server_name} if self.access.server_name else {}

    def _tls(self, credential: Credential) -> ssl.SSLContext:
        with self._lock:
            shown = (credential.certificate, credential.key)
            if self._context is None or self._context[0] != shown:
                self._context = (shown, tls.context(self.access, credential))
            return self._context[1]

    def _client(self, credential: Credential) -> httpx.Client:
        context = self._tls(credential)
        with self._lock:
            # Another certificate needs other connections; those that are in use end by themselves.
            if self._http is None or self._http[0] is not context:
                made = httpx.Client(base_url=self.access.server, verify=context, proxy=self.proxy, trust_env=False)
                self._http = (context, made)
            return self._http[1]
