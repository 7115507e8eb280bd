"""Which proxy leads to an API server, by kubectl's rules."""

from __future__ import annotations

import kubernetes.client.rest  # noqa: F401 (its import tries a socket, which a test may not)
import pytest

from trainyard.seams.kube import proxies

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        ("https://k8s.example.org:6443", "", True),
        ("https://127.0.0.1:16443", "", False),
        ("https://localhost:16443", "", False),
        ("https://[::1]:16443", "", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://11.1.2.3", "10.0.0.0/8,192.0.2.0/24", True),
        ("https://10.1.2.3", "10.1.2.3", False),
        ("https://k8s.example.org", "example.org", False),
        ("https://example.org", "example.org", False),
        ("https://k8s.example.org", " .example.org ", False),
        ("https://badexample.org", "example.org", True),
        ("https://k8s.example.org:6443", "k8s.example.org:6443", False),
        ("https://k8s.example.org:6443", "k8s.example.org:443", True),
        ("https://k8s.example.org", "k8s.example.org:443", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://k8s.example.org", "*", False),
        ("https://10.1.2.3", "10.0.0.0/nonsense", True),
    ],
)
def test_no_proxy_means_what_it_means_to_kubectl(server: str, no_proxy: str, proxied: bool) -> None:
    found = proxies.proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert found == (PROXY if proxied else None)


def test_small_letters_and_addresses_without_a_scheme_are_understood() -> None:
    assert proxies.proxy_for("https://k8s", {"https_proxy": "proxy:3128"}) == PROXY
    assert proxies.proxy_for("http://k8s", {"https_proxy": "proxy:3128"}) is None


def test_the_kubeconfig_s_own_proxy_counts_before_the_environment() -> None:
    environ = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert proxies.proxy_for("https://k8s", environ, named=PROXY) == PROXY


def test_a_proxy_with_a_user_is_logged_in_to() -> None:
    assert proxies.login(PROXY) is None
    assert proxies.login("http://us%40er:pa%3Ass@proxy:3128") == {"proxy-authorization": "Basic dXNAZXI6cGE6c3M="}
