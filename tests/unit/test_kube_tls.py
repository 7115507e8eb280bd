"""The TLS context that all threads share."""

from __future__ import annotations

import ssl
from types import SimpleNamespace

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
