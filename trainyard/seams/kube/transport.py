"""HTTP to one Kubernetes API server: logged in, with a deadline, tried again where that is safe."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from trainyard.seams.kube import errors, login
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import Request

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
# Admission webhooks may take this long (admissionregistration/v1, timeoutSeconds), and CRDs are megabytes.
CHANGE_SECONDS = 30.0
# 500 pods are some 10 MiB; more is cut off, and is then no JSON.
ANSWER_LIMIT = 64 * 1024 * 1024
TRIES = 4
# The library's modules import each other: of two threads that begin at once, one would find it half imported.
_importing = threading.Lock()


@dataclass(frozen=True)
class Session:
    """A login: the library's client and configuration, and the TLS context of both it and websockets."""

    client: Any
    configuration: Any
    tls: ssl.SSLContext | None


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Transport:
    """The connections to one server; threads may share it. The first question logs in."""

    def __init__(self, access: Access, environ: Mapping[str, str]) -> None:
        self.access = access
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._session: Session | None = None

    def send(
        self,
        method: str,
        path: str,
        request: Request,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: tuple[int, ...] = (),
    ) -> Answer:
        """Return the server's answer; `accept` are statuses besides 2xx. Raises KubeError, PrerequisiteError."""
        # It imports the library, one thread at a time.
        first = session = self.session()
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError, ProtocolError

        url = f"{self.access.server}{path}" + (f"?{urlencode(params)}" if params else "")
        for left in reversed(range(TRIES)):
            try:
                answer = self._call(session, method, url, body, content_type)
            except (OSError, HTTPError, ApiException) as error:
                # A connection that was kept, and that the server or a proxy has closed meanwhile.
                if left and method == "GET" and isinstance(error, ProtocolError):
                    continue
                raise errors.unreachable(error, self.access, session.configuration.proxy) from error
            if 200 <= answer.status < 300 or answer.status in accept:
                return answer
            if answer.status == 401 and session is first:
                session = self.renew(session)
            elif answer.status == 429 and left:
                # As long as the API server asks for (k8s.io/apiserver, filters: retryAfter).
                time.sleep(1.0)
            else:
                break
        raise errors.refused(answer.status, answer.body, request, self.access)

    def session(self) -> Session:
        """Return the login to use. Raises PrerequisiteError if we cannot log in."""
        with self._lock:
            self._session = self._session or self._log_in()
            return self._session

    def authorization(self, session: Session) -> dict[str, str]:
        """Return the header that says who we are, if it is not a certificate that says so."""
        with self._lock, login.complaints(self.access):
            # The library asks the plugin again when its token ends soon.
            token = session.configuration.get_api_key_with_prefix("BearerToken")
        return {"authorization": token} if token else {}

    def renew(self, refused: Session) -> Session:
        """Return another login than the one that was refused: a program that logs in is asked again, files are read."""
        with self._lock:
            if self._session is refused or self._session is None:
                self._session = self._log_in()
            return self._session

    def _log_in(self) -> Session:
        with _importing:
            from kubernetes.client import ApiClient

        configuration = login.configuration(self.access, self._environ)
        client = ApiClient(configuration).rest_client
        if not self.access.server.startswith("https:"):
            return Session(client, configuration, None)
        tls = login.context(configuration, self.access)
        # One context for all connections, instead of one that reads the same files for each.
        keywords = client.pool_manager.connection_pool_kw
        for name in ("ca_certs", "cert_file", "key_file", "ca_cert_data", "cert_reqs"):
            keywords.pop(name, None)
        keywords["ssl_context"] = tls
        return Session(client, configuration, tls)

    def _call(self, session: Session, method: str, url: str, body: Any, content_type: str) -> Answer:
        headers = {"User-Agent": "trainyard", "Accept": "application/json", **self.authorization(session)}
        if body is not None:
            headers["Content-Type"] = content_type
        seconds = ANSWER_SECONDS if method == "GET" else CHANGE_SECONDS
        timeouts = (CONNECT_SECONDS, seconds)
        response = session.client.request(method, url, headers=headers, body=body, _request_timeout=timeouts).response
        return Answer(response.status, response.read(ANSWER_LIMIT))
