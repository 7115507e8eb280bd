"""Log in with the `kubernetes` library: its configuration, with what it complains about in our words."""

from __future__ import annotations

import base64
import ipaddress
import logging
import os
import ssl
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.config import MOUNTED, Access


def configuration(access: Access, environ: Mapping[str, str]) -> Any:
    """Return a kubernetes.client.Configuration that is logged in. Raises PrerequisiteError if that cannot be."""
    # The library takes half a second to import, however little of it.
    from kubernetes.client import Configuration

    made = Configuration()
    with complaints(access):
        _load(made, access, environ)
    # Decided here, by kubectl's rules: the library sends loopback addresses through a proxy.
    made.proxy = proxy_for(access.server, environ, named=access.proxy)
    made.no_proxy = ""
    made.proxy_headers = proxy_login(made.proxy)
    # Who calls decides what may be asked twice.
    made.retries = False
    made.keep_alive = True
    return made


class _Shared(ssl.SSLContext):
    """A context that threads may share, although urllib3 sets its protocols anew before each connection.

    To set them while another thread opens one sends freed memory, and the server refuses the handshake with
    TLSV1_ALERT_DECODE_ERROR or worse (python/cpython issue 141012).
    """

    def settle(self) -> None:
        super().set_alpn_protocols(["http/1.1"])

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Change nothing: they are set."""


def context(made: Any, access: Access) -> ssl.SSLContext:
    """Return what TLS needs: the server's CA, our certificate. Raises PrerequisiteError if one cannot be used."""
    import certifi

    # Not ssl.create_default_context: since Python 3.13 it refuses CAs as Kubernetes makes them (VERIFY_X509_STRICT;
    # canonical/microk8s#4864).
    tls = _Shared(ssl.PROTOCOL_TLS_CLIENT)
    tls.settle()
    if not made.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        _warn_once(access)
    try:
        tls.load_verify_locations(cafile=made.ssl_ca_cert or certifi.where())
        if made.cert_file:
            # Without a password, a key that has one is an error: OpenSSL would ask for it on the terminal.
            tls.load_cert_chain(made.cert_file, made.key_file, password="")
    except OSError as error:  # ssl.SSLError is one
        raise PrerequisiteError(
            f"a certificate of context {access.context} cannot be used: {error.strerror or error}",
            where=access.source,
            hint="`kubectl config view --raw` shows the CA, and the user's certificate and key.",
        ) from error
    return tls


@cache
def _warn_once(access: Access) -> None:
    """Say in our words, once, what urllib3 says of each request."""
    from urllib3.exceptions import InsecureRequestWarning

    warnings.simplefilter("ignore", InsecureRequestWarning)
    unchecked = f"the certificate of {access.server} is not checked: its kubeconfig says insecure-skip-tls-verify"
    warnings.warn(unchecked, stacklevel=1)


def proxy_for(server: str, environ: Mapping[str, str], *, named: str | None = None) -> str | None:
    """Return the proxy to use, as a URL; one that the kubeconfig names counts, else that of the environment."""
    parts = urlsplit(server)
    proxy = _variable(environ, f"{parts.scheme}_proxy".upper())
    if named or not proxy or _is_loopback(parts.hostname or ""):
        return named
    from kubernetes.client.rest import should_bypass_proxies

    port = parts.port or (443 if parts.scheme == "https" else 80)
    whole = parts._replace(netloc=f"{parts.netloc.removesuffix(f':{port}')}:{port}").geturl()
    if should_bypass_proxies(whole, _variable(environ, "NO_PROXY")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def proxy_login(proxy: str | None) -> dict[str, str] | None:
    parts = urlsplit(proxy or "")
    words = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    encoded = base64.b64encode(words.encode()).decode()
    return {"proxy-authorization": f"Basic {encoded}"} if parts.username else None


@contextmanager
def complaints(access: Access) -> Iterator[None]:
    """Turn what the library raises and logs while it logs in into one error; it goes on without a login otherwise."""
    from kubernetes.config import ConfigException

    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        yield
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        raise _failed(access, str(error) if isinstance(error, (ConfigException, OSError)) else "") from error
    finally:
        logging.getLogger().removeHandler(heard)
    if heard.errors:
        raise _failed(access, heard.errors[-1])


class _Heard(logging.Handler):
    """Collects what this thread logs as an error to the root logger itself, as kubernetes.config does.

    A handler of the root logger also keeps it off the terminal.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._thread = threading.get_ident()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and record.name == "root":
            self.errors.append(record.getMessage())


def _load(made: Any, access: Access, environ: Mapping[str, str]) -> None:
    from kubernetes.config import load_kube_config
    from kubernetes.config.incluster_config import InClusterConfigLoader

    if not access.files:
        inside = InClusterConfigLoader(str(MOUNTED / "token"), str(MOUNTED / "ca.crt"), environ=environ)
        inside.load_and_set(made)
        return
    # Keys go into files for as long as this process lives; this directory is the user's own, and in memory.
    private = environ.get("XDG_RUNTIME_DIR", "")
    load_kube_config(
        os.pathsep.join(map(str, access.files)),
        context=access.context,
        client_configuration=made,
        persist_config=False,
        temp_file_path=private if private and os.access(private, os.W_OK) else None,
    )


def _failed(access: Access, why: str) -> PrerequisiteError:
    who = f"{access.plugin} could not log in" if access.plugin else f"user {access.user or '(nobody)'} cannot log in"
    lines = why.removeprefix("exec: ").strip().splitlines()
    return PrerequisiteError(
        f"{who} to the Kubernetes cluster" + (f": {lines[-1].strip()[:300]}" if lines else ""),
        where=f"{access}, from {access.source}",
        hint="Log in by hand and repeat the command; `kubectl get pods` logs in in the same way.",
    )


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.lower()) or "").strip()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
