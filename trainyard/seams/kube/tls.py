"""Trust in an API server, and the certificate that we show it."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.plugin import Credential


def context(access: Access, credential: Credential) -> ssl.SSLContext:
    """Return what TLS needs for this server. Raises PrerequisiteError for a certificate that cannot be used."""
    made = _trusting(access)
    if access.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credential.certificate and credential.key:
        _show(made, access, credential.certificate + b"\n" + credential.key)
    return made


def _trusting(access: Access) -> ssl.SSLContext:
    if access.authority is None:
        return httpx.create_ssl_context()
    # Not ssl.create_default_context: since Python 3.13 it refuses CAs as Kubernetes makes them (VERIFY_X509_STRICT).
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        made.load_verify_locations(cadata=access.authority.decode())
    except (ssl.SSLError, ValueError) as error:
        raise PrerequisiteError(
            "the kubeconfig's CA is not a certificate", where=f"context {access.context} of {access.source}"
        ) from error
    return made


def _show(made: ssl.SSLContext, access: Access, pem: bytes) -> None:
    """Let a context show a certificate, which Python reads from files only."""
    try:
        with _as_file(pem) as path:
            # Without a password a key that needs one is an error; OpenSSL would ask on the terminal.
            made.load_cert_chain(path, password="")
    except (ssl.SSLError, OSError) as error:
        raise PrerequisiteError(
            f"the client certificate of user {access.user} cannot be used",
            where=access.source,
            hint="Is its key there, its own, and without a password?",
        ) from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give content a path: of memory on Linux, else of a file that only we can read and that is gone afterwards."""
    if hasattr(os, "memfd_create"):
        handle, name = os.memfd_create("trainyard"), ""
    else:
        handle, name = tempfile.mkstemp(prefix="trainyard-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            yield name or f"/proc/self/fd/{handle}"
    finally:
        if name:
            with suppress(OSError):
                Path(name).unlink()
