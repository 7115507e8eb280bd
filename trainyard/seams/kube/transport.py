"""HTTP with deadlines to an API server; the `kubernetes` library logs in."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import ssl
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import errors
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import KubeError
from trainyard.seams.kube.types import Object

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
# Admission webhooks may take this long (admissionregistration/v1, timeoutSeconds); CRDs are big.
CHANGE_SECONDS = 30.0
# A list of 500 pods has about 10 MiB. A larger answer is cut off here, and rejected as invalid
# JSON.
ANSWER_LIMIT = 256 * 1024 * 1024
# The most times that a request is sent while the API server answers 429 and asks for a pause.
TRIES = 4
# The library's modules import each other: two threads that import them would find some incomplete.
_importing = threading.Lock()


@dataclass(frozen=True)
class Session:
    """A login: the library's client and configuration, and the TLS context."""

    client: Any
    configuration: Any
    tls: ssl.SSLContext | None


@dataclass(frozen=True)
class Response:
    """An answer of the server."""

    status: int
    body: bytes

    def document(self) -> Object:
        """Return the object in the answer. Raises KubeError."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise KubeError("the Kubernetes API did not answer with an object")
        return document


class Transport:
    """Connections to one server, for any thread; the first request logs in."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._lock = threading.Lock()
        self._session: Session | None = None

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: tuple[int, ...] = (),
    ) -> Response:
        """Return the answer; statuses in `accept` count as success, as 2xx do.

        After a 401, log in again and repeat the request once. Raises KubeError,
        PrerequisiteError.
        """
        url = f"{self.access.server}{path}"
        if params:
            url += f"?{urlencode(params)}"

        session = self.session()
        response = self._call(session, method, url, body, content_type)
        if response.status == 401:
            response = self._call(self._renew(session), method, url, body, content_type)
        if 200 <= response.status < 300 or response.status in accept:
            return response
        raise errors.refused(response.status, response.body, f"{method} {path}", self.access)

    def session(self) -> Session:
        """Return the login. Raises PrerequisiteError if the login fails."""
        with self._lock:
            self._session = self._session or _log_in(self.access)
            return self._session

    def authorization(self, session: Session) -> dict[str, str]:
        """Return the token's header; {} for a user with a certificate."""
        with self._lock:
            # The library runs a login program again before its token expires.
            token = session.configuration.get_api_key_with_prefix("BearerToken")
        return {"authorization": token} if token else {}

    def _renew(self, refused: Session) -> Session:
        """Replace a rejected login: run login programs and read files again."""
        with self._lock:
            if self._session is refused:
                self._session = None
        return self.session()

    def _call(
        self, session: Session, method: str, url: str, body: Any, content_type: str
    ) -> Response:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        headers = {
            "User-Agent": "trainyard",
            "Accept": "application/json",
            **self.authorization(session),
        }
        if body is not None:
            headers["Content-Type"] = content_type

        seconds = CHANGE_SECONDS
        if method == "GET":
            seconds = ANSWER_SECONDS
        timeouts = (CONNECT_SECONDS, seconds)

        try:
            reply = session.client.request(
                method, url, headers=headers, body=body, _request_timeout=timeouts
            )
            return Response(reply.status, reply.response.read(ANSWER_LIMIT))
        except (OSError, HTTPError, ApiException) as error:
            raise errors.unreachable(error, self.access) from error


def _log_in(access: Access) -> Session:
    with _importing:
        from kubernetes.client import ApiClient
        from kubernetes.config import ConfigException

    try:
        configuration = _configuration(access)
        client = ApiClient(configuration).rest_client
        if not access.server.startswith("https:"):
            return Session(client, configuration, None)

        tls = _tls(configuration)
        if not configuration.verify_ssl:
            unchecked = f"the certificate of {access.server} is not checked"
            warnings.warn(
                f"{unchecked}: its kubeconfig says insecure-skip-tls-verify", stacklevel=1
            )
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        raise PrerequisiteError(
            f"user {access.user or '(none)'} cannot log in to the Kubernetes cluster: {error}",
            where=f"{access}, from {access.source}",
            hint="Log in by hand and repeat the command; `kubectl get pods` uses the same login.",
        ) from error

    # All connections share one TLS context; otherwise each of them reads the same files again.
    keywords = client.pool_manager.connection_pool_kw
    for name in ("ca_certs", "cert_file", "key_file", "ca_cert_data", "cert_reqs"):
        keywords.pop(name, None)
    keywords["ssl_context"] = tls
    return Session(client, configuration, tls)


@contextlib.contextmanager
def _failed_logins() -> Iterator[list[str]]:
    """Yield a list that collects the library's messages about a failed login.

    The library only logs them, and continues without a login.
    """
    messages: list[str] = []
    here = threading.get_ident()
    handler = logging.Handler(logging.ERROR)
    handler.addFilter(lambda record: record.thread == here)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)


def _configuration(access: Access) -> Any:
    """Return a kubernetes.client.Configuration that is logged in."""
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config
    from urllib3 import Retry

    configuration = Configuration()
    # While this process lives, the library keeps keys in files. XDG_RUNTIME_DIR is in memory, and
    # only its user can read it.
    private: str | None = os.environ.get("XDG_RUNTIME_DIR")
    if not private or not os.access(private, os.W_OK):
        private = None

    with _failed_logins() as failed:
        load_kube_config(
            os.pathsep.join(map(str, access.files)),
            context=access.context,
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=private,
        )
    if failed:
        raise ValueError("; ".join(failed))

    if urlsplit(access.server).hostname in ("127.0.0.1", "::1", "localhost"):
        # As in kubectl, loopback needs no proxy. The library would use the environment's, which
        # would connect to its own loopback.
        configuration.proxy = None

    configuration.retries = Retry(
        TRIES - 1,
        connect=0,
        read=0,
        redirect=0,
        other=0,
        allowed_methods=None,
        status_forcelist=(429,),
        backoff_factor=1,
        raise_on_status=False,
    )
    configuration.keep_alive = True
    return configuration


class _Shared(ssl.SSLContext):
    """A TLS context for all threads: its ALPN protocols never change.

    urllib3 sets the ALPN protocols before each connection. If another thread
    connects just then, OpenSSL sends freed memory, and the server rejects the
    handshake with TLSV1_ALERT_DECODE_ERROR or worse (python/cpython issue
    141012).
    """

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Change nothing; without ALPN protocols, both sides use HTTP/1.1."""


def _tls(configuration: Any) -> ssl.SSLContext:
    """Return the TLS context, with the server's CA and the user's certificate.

    Raises OSError if one of these files cannot be used.
    """
    # Not ssl.create_default_context: since Python 3.13 it rejects Kubernetes' own CAs
    # (VERIFY_X509_STRICT; canonical/microk8s#4864).
    tls = _Shared(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if configuration.ssl_ca_cert:
        tls.load_verify_locations(cafile=configuration.ssl_ca_cert)
    else:
        tls.load_default_certs()
    if configuration.cert_file:
        # Without the empty password, OpenSSL would prompt for an encrypted key's password.
        tls.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    return tls
