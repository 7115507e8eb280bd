"""What threads share while they log in: the TLS context, and the log of the library."""

from __future__ import annotations

import logging
import ssl
import threading
from types import SimpleNamespace

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import login
from trainyard.seams.kube.access import Access


def test_protocols_are_set_once_because_threads_share_the_context() -> None:
    made = SimpleNamespace(verify_ssl=True, ssl_ca_cert=None, cert_file=None, key_file=None)
    tls = login.context(made, Access(context="lab", server="https://lab:6443", namespace="default", user="me"))
    # As urllib3 does before each connection.
    tls.set_alpn_protocols(["another"])
    sent = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="lab")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        hello = sent.read()
    assert b"http/1.1" in hello
    assert b"another" not in hello


def complained(*, name: str, elsewhere: bool) -> list[str]:
    """Return the errors of a login during which somebody logged something."""
    access = Access(context="lab", server="https://lab:6443", namespace="default", user="me", plugin="cloud-login")
    try:
        with login.complaints(access):
            said = threading.Thread(target=logging.getLogger(name).error, args=("exec: no session",))
            if elsewhere:
                said.start()
                said.join()
            else:
                said.run()
    except PrerequisiteError as error:
        return [error.what]
    return []


def test_a_login_is_failed_by_what_the_library_logs_in_the_same_thread() -> None:
    failed = ["cloud-login could not log in to the Kubernetes cluster: no session"]
    assert complained(name="root", elsewhere=False) == failed


def test_another_threads_login_and_other_libraries_fail_nobodys() -> None:
    assert complained(name="root", elsewhere=True) == []
    assert complained(name="urllib3", elsewhere=False) == []
