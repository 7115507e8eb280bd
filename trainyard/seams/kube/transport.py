"""HTTP to one Kubernetes API server: logged in, with a deadline, tried again where that is safe."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from trainyard.seams.kube import login, refusals
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.refusals import Doing

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
# 500 pods are some 10 MiB; more is cut off, and is then no JSON.
ANSWER_LIMIT = 64 * 1024 * 1024
# Admission webhooks may take this long (admissionregistration/v1, timeoutSeconds), and CRDs are megabytes.
CHANGE_SECONDS = 30.0
# A server that has too much to do says when to come again; it is believed up to this.
PAUSE_SECONDS = 3.0
TRIES = 4


@dataclass(frozen=True)
class Session:
    """A login: the library's client and configuration, and the TLS context of both it and websockets."""

    client: Any
    tls: ssl.SSLContext | None

    @property
    def configuration(self) -> Any:
        """Return the library's configuration."""
        return self.client.configuration


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return it, parsed; None if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Transport:
    """The way to one server; threads may share it. The first question logs in."""

    def __init__(self, access: Access, environ: Mapping[str, str]) -> None:
        self.access = access
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._session: Session | None = None

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
        seconds: float | None = None,
    ) -> Answer:
        """Return the server's answer; `accept` are statuses besides 2xx. Raises KubeError, PrerequisiteError."""
        may_be_stale = method == "GET"
        seconds = seconds or (ANSWER_SECONDS if method == "GET" else CHANGE_SECONDS)
        first = session = self.session()
        for left in range(TRIES, 0, -1):
            try:
                response = self._call(session, method, path, params, body, content_type, seconds)
                answer = Answer(response.status, response.read(ANSWER_LIMIT))
            except _failures() as error:
                # A connection that was kept, and that the server or a proxy has closed meanwhile.
                if may_be_stale and refusals.is_broken(error):
                    may_be_stale = False
                    continue
                raise self._unreachable(error) from error
            if 200 <= answer.status < 300 or answer.status in accept:
                return answer
            if answer.status == 401 and session is first:
                session = self.renew(session)
            elif answer.status != 429 or left == 1:
                break
            else:
                _pause(response)
        raise refusals.refused(answer.status, answer.body, doing, self.access)

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
        from kubernetes.client import ApiClient

        configuration = login.configuration(self.access, self._environ)
        client = ApiClient(configuration)
        client.user_agent = "trainyard"
        if not self.access.server.startswith("https:"):
            return Session(client, None)
        tls = login.context(configuration, self.access)
        # One context for all connections, instead of one that reads the same files for each.
        keywords = client.rest_client.pool_manager.connection_pool_kw
        for name in ("ca_certs", "cert_file", "key_file", "ca_cert_data", "cert_reqs"):
            keywords.pop(name, None)
        keywords["ssl_context"] = tls
        return Session(client, tls)

    def _call(
        self,
        session: Session,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        seconds: float,
    ) -> Any:
        """Return urllib3's response, unread."""
        headers = self.authorization(session)
        if body is not None:
            headers["Content-Type"] = content_type
        request = session.client.param_serialize(
            method,
            path,
            query_params=list((params or {}).items()),
            header_params=headers,
            # The library turns objects into JSON for the content types that it knows.
            body=body if content_type.endswith("json") else json.dumps(body) if body is not None else None,
        )
        return session.client.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds)).response

    def _unreachable(self, error: Exception) -> Exception:
        session = self._session
        proxy = cast("str | None", session.configuration.proxy) if session else None
        return refusals.unreachable(error, self.access, proxy)


def _pause(response: Any) -> None:
    """Wait as long as a busy server asks for, within reason."""
    asked = str(response.headers.get("Retry-After", ""))
    time.sleep(min(float(asked) if asked.isdigit() else 1.0, PAUSE_SECONDS))


def _failures() -> tuple[type[Exception], ...]:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    return (OSError, HTTPError, ApiException)
