"""The cluster agent, which accepts joins on port 25000: `python3 -m standin.agent` as a service.

Its answers and their order are those of canonical/microk8s-cluster-agent (pkg/api/v2/join.go). The
files and addresses that an accepted join returns are the bed's own.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standin import services, store, tokens
from standin.places import AGENT_PORT, API_PORT, CERTS, STORE_PORT, installed, is_worker, lock

CA_FILES = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "serviceaccount.key")
LOCK = threading.Lock()


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """The agent's requests, all of them POST.

    /cluster/api/v2.0/join accepts a node. A control plane that joins asks /standin/member to become
    a member of the store. An addon that is enabled on another node sends new arguments of the
    kubelet to /standin/kubelet.
    """

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        remote = self.client_address[0]
        try:
            answer, status = self._answer(body, remote), 200
        except Refused as refused:
            # pkg/httputil capitalizes messages.
            message = str(refused)
            answer, status = {"error": message[:1].upper() + message[1:]}, refused.status
        except store.StoreError as error:
            answer, status = {"error": f"failed to retrieve dqlite cluster nodes: {error}"}, 500

        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _answer(self, body: dict[str, Any], remote: str) -> dict[str, Any]:
        with LOCK:
            if self.path == "/cluster/api/v2.0/join":
                return _join(body, remote, self.headers["Host"].rpartition(":")[0])
            if (
                self.path.startswith("/standin/")
                and body.get("key") == (CERTS / "ca.key").read_text()
            ):
                if self.path == "/standin/member":
                    return {"initial": store.add(f"{remote}:{STORE_PORT}")}
                services.configure_kubelet(body["arguments"])
                return {}
        raise Refused(404, "not found")


def _join(body: dict[str, Any], remote: str, contacted: str) -> dict[str, Any]:
    if not tokens.consume(body["token"]):
        raise Refused(500, "invalid token")
    if remote == contacted:
        raise Refused(503, f"the joining node has the same IP ({contacted}) as the node we contact")

    name = body["hostname"]
    preferred = services.argument_of("kube-apiserver", "--kubelet-preferred-address-types").split(
        ","
    )
    if preferred.index("InternalIP") > preferred.index("Hostname") and not _resolves(name, remote):
        message = (
            f"the hostname ({name}) of the joining node does not resolve to the IP "
            f'"{remote}". Refusing join'
        )
        raise Refused(400, message)
    if any(member["Address"].startswith(f"{remote}:") for member in store.members()):
        raise Refused(504, f"the joining node ({remote}) is already known to dqlite")

    is_alone = store.own_address().startswith("127.")
    if is_alone:
        store.leave_loopback(f"{contacted}:{STORE_PORT}")

    if (not body["worker"] and store.steady()) or is_alone:
        services.restart("dqlite")
        services.wait_for_api()
        store.write_files()
        services.restart("kine")

    lock("no-cert-reissue")
    found = installed()
    assert found is not None
    names = CA_FILES if not body["worker"] else ("ca.crt",)
    files = {file: (CERTS / file).read_text() for file in names}
    # A worker signs its own certificates here, where a real cluster signs for it. With AlwaysAllow,
    # the CA's key grants no more than such a certificate.
    signing = {"ca.key": (CERTS / "ca.key").read_text()} if body["worker"] else {}

    return {
        "version": found.version,
        "files": files,
        "signing": signing,
        "apiport": API_PORT,
        "kubelet_dns": services.argument_of("kubelet", "--cluster-dns"),
        "control_plane_nodes": [member["Address"].rpartition(":")[0] for member in store.members()],
    }


def _resolves(name: str, address: str) -> bool:
    try:
        return address in socket.gethostbyname_ex(name)[2]
    except OSError:
        return False


def _keep_roles() -> None:
    was_voter = True
    while True:
        try:
            # A join gives this node another address. Without the lock, members that were read
            # before the join would restore the former address.
            with LOCK:
                store.write_files()

            is_voter = store.is_voter()
            if is_voter and not was_voter:
                # kine keeps using the first voter that it asked, which can be dead without a sign.
                # After a restart, it asks this node.
                with LOCK:
                    services.restart("kine")

            was_voter = is_voter
            store.adjust_roles()
        except store.StoreError as error:
            print(error, flush=True)

        time.sleep(1)


def main() -> None:
    if not is_worker():
        threading.Thread(target=_keep_roles, daemon=True).start()
    server = ThreadingHTTPServer(("0.0.0.0", AGENT_PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "server.crt", CERTS / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
