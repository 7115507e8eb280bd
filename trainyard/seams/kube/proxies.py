"""Which proxy leads to an API server: the same one as for kubectl.

What $NO_PROXY means is golang.org/x/net/http/httpproxy's: names with their subdomains, addresses, CIDR blocks, ports.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit


def proxy_for(server: str, environ: Mapping[str, str], *, named: str | None = None) -> str | None:
    """Return the proxy to use, as a URL; one that the kubeconfig names counts, else that of the environment."""
    if named:
        return named
    parts = urlsplit(server)
    host = (parts.hostname or "").lower().rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = _variable(environ, f"{parts.scheme}_proxy".upper())
    if not found or _is_loopback(host) or _excluded(host, port, _variable(environ, "NO_PROXY")):
        return None
    return found if "://" in found else f"http://{found}"


def login(proxy: str | None) -> dict[str, str] | None:
    """Return the header for a proxy whose URL has a user."""
    parts = urlsplit(proxy or "")
    if not parts.username:
        return None
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.lower()) or "").strip()


def _excluded(host: str, port: int, listed: str) -> bool:
    return any(_matches(host, port, one.strip().lower()) for one in listed.split(",") if one.strip())


def _matches(host: str, port: int, rule: str) -> bool:
    if rule == "*":
        return True
    address = _address(host)
    if address is not None and "/" in rule:
        try:
            return address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    rule, asked = _split(rule)
    if asked is not None and asked != str(port):
        return False
    if address is not None:
        return address == _address(rule)
    # ".example.org" is the subdomains only, "example.org" itself too.
    return host == rule or host.endswith(rule if rule.startswith(".") else f".{rule}")


def _split(rule: str) -> tuple[str, str | None]:
    """Return host and port of HOST, HOST:PORT or [IPv6]:PORT."""
    if rule.startswith("["):
        host, _, rest = rule[1:].partition("]")
        return host, rest.removeprefix(":") or None
    if rule.count(":") == 1:
        host, _, port = rule.partition(":")
        return host, port
    return rule, None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)
