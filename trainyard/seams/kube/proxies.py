"""Which proxy leads to an API server: the same one as for kubectl, which never sends loopback addresses through one."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit


def proxy_for(server: str, environ: Mapping[str, str], *, named: str | None = None) -> str | None:
    """Return the proxy to use, as a URL; one that the kubeconfig names counts, else that of the environment."""
    if named:
        return named
    from kubernetes.client.rest import should_bypass_proxies

    parts = urlsplit(server)
    proxy = _variable(environ, f"{parts.scheme}_proxy".upper())
    port = parts.port or (443 if parts.scheme == "https" else 80)
    whole = parts._replace(netloc=f"{parts.netloc.removesuffix(f':{port}')}:{port}").geturl()
    if not proxy or _is_loopback(parts.hostname or "") or should_bypass_proxies(whole, _variable(environ, "NO_PROXY")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def login(proxy: str | None) -> dict[str, str] | None:
    """Return the header for a proxy whose URL has a user."""
    parts = urlsplit(proxy or "")
    if not parts.username:
        return None
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.lower()) or "").strip()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
