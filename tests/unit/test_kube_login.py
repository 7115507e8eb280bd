"""Logging in: proxies by kubectl's rules, and what threads share: the TLS context, and the log of the library."""

from __future__ import annotations

import logging
import ssl
import threading
from types import SimpleNamespace

import kubernetes.client.rest  # noqa: F401 (its import tries a socket, which a test may not)
import pytest

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import login
from trainyard.seams.kube.config import Access

PROXY = "http://proxy:3128"
ACCESS = Access(context="lab", server="https://lab:6443", namespace="default", user="me", plugin="cloud-login")


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        ("https://k8s.example.org:6443", "", True),
        ("https://127.0.0.1:16443", "", False),
        ("https://localhost:16443", "", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://11.1.2.3", "10.0.0.0/8,192.0.2.0/24", True),
        ("https://k8s.example.org", " .example.org ", False),
        ("https://badexample.org", "example.org", True),
        ("https://k8s.example.org", "k8s.example.org:443", False),
        ("https://k8s.example.org:6443", "k8s.example.org:443", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://k8s.example.org", "*", False),
    ],
)
def test_no_proxy_means_what_it_means_to_kubectl(server: str, no_proxy: str, proxied: bool) -> None:
    found = login.proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert found == (PROXY if proxied else None)


def test_small_letters_and_what_the_kubeconfig_names_count_too() -> None:
    assert login.proxy_for("https://k8s", {"https_proxy": "proxy:3128"}) == PROXY
    assert login.proxy_for("http://k8s", {"https_proxy": "proxy:3128"}) is None
    assert login.proxy_for("https://k8s", {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}, named=PROXY) == PROXY


def test_a_proxy_with_a_user_is_logged_in_to() -> None:
    assert login.proxy_login(PROXY) is None
    said = login.proxy_login("http://us%40er:pa%3Ass@proxy:3128")
    assert said == {"proxy-authorization": "Basic dXNAZXI6cGE6c3M="}


def test_protocols_are_set_once_because_threads_share_the_context() -> None:
    made = SimpleNamespace(verify_ssl=True, ssl_ca_cert=None, cert_file=None, key_file=None)
    tls = login.context(made, ACCESS)
    # As urllib3 does before each connection.
    tls.set_alpn_protocols(["another"])
    sent = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="lab")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = sent.read()
    assert b"http/1.1" in hello
    assert b"another" not in hello


@pytest.mark.parametrize(
    ("name", "elsewhere", "fails"), [("root", False, True), ("root", True, False), ("urllib3", False, False)]
)
def test_a_login_is_failed_by_what_the_library_logs_in_the_same_thread(name: str, elsewhere: bool, fails: bool) -> None:
    logged = threading.Thread(target=logging.getLogger(name).error, args=("exec: no session",))
    errors = []
    try:
        with login.complaints(ACCESS):
            if elsewhere:
                logged.start()
                logged.join()
            else:
                logged.run()
    except PrerequisiteError as error:
        errors.append(error.what)
    assert errors == ["cloud-login could not log in to the Kubernetes cluster: no session"] * fails
