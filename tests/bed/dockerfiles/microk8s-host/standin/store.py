"""The stand-in for dqlite: etcd with the cluster's members; its learners are dqlite's spares.

dqlite has one voter until there are three nodes, and then three voters (go-dqlite, roles.go). The
stand-in follows that rule.
"""

from __future__ import annotations

import json
import shutil
import threading
import urllib.error
import urllib.request
from typing import Any

import yaml

from standin.places import BACKEND, STORE_CLIENTS, STORE_PORT, addresses, installed, wait_until

LOCAL = f"http://127.0.0.1:{STORE_CLIENTS}"
VOTERS = 3
STEADY = "steady"
Member = dict[str, Any]


class StoreError(Exception):
    """An error of the store: it rejects a request, or does not answer."""


def ask(
    path: str, document: object | None = None, *, at: str = LOCAL, seconds: float = 10.0
) -> dict[str, Any]:
    """Send a request to etcd's JSON gateway, and return its answer."""
    body = json.dumps(document or {}).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{at}/v3/{path}", body), timeout=seconds
        ) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise StoreError(error.read().decode()) from error
    except (OSError, urllib.error.URLError) as error:
        raise StoreError(str(error)) from error


def ask_cluster(
    path: str, document: object | None = None, *, elsewhere: bool = False
) -> dict[str, Any]:
    """Send a request about the cluster to this node's etcd, or else to another member's.

    With `elsewhere`, only other members are asked. A learner answers no questions about its
    cluster.
    """
    first = StoreError("no other member answers")
    try:
        if not elsewhere:
            return ask(f"cluster/{path}", document)
    except StoreError as error:
        first = error

    for address in _known():
        try:
            seconds = 10 if elsewhere else 3
            return ask(
                f"cluster/{path}", document, at=f"http://{address}:{STORE_CLIENTS}", seconds=seconds
            )
        except StoreError:
            continue

    raise first


def _known() -> list[str]:
    """Return the hosts of the other members, as this node knew them last."""
    joins, listed = BACKEND / "joins", BACKEND / "cluster.yaml"
    found = (
        [member["Address"] for member in yaml.safe_load(listed.read_text())]
        if listed.exists()
        else []
    )
    found += (
        [part.partition("=")[0] for part in joins.read_text().split(",")] if joins.exists() else []
    )
    own = own_address()
    return [address.rpartition(":")[0] for address in dict.fromkeys(found) if address != own]


def members() -> list[Member]:
    """Return the members in the form of dqlite's cluster.yaml: Address, ID, Role.

    Role is 0 for a voter, 2 for a spare.
    """
    found = ask_cluster("member/list").get("members", [])
    return [
        {
            "Address": member["peerURLs"][0].removeprefix("http://"),
            "ID": int(member["ID"]),
            "Role": 2 if member.get("isLearner") else 0,
        }
        for member in found
    ]


def own_address() -> str:
    """Return the address of this node's store: a loopback address until another node joins."""
    path = BACKEND / "info.yaml"
    return (
        str(yaml.safe_load(path.read_text())["Address"])
        if path.exists()
        else f"127.0.0.1:{STORE_PORT}"
    )


def write_files() -> None:
    """Write cluster.yaml and info.yaml in dqlite's form.

    This node comes first in the list, so that kine asks it first.
    """
    found = sorted(members(), key=lambda member: member["Address"] != own_address())
    _write("cluster.yaml", found)
    if found and found[0]["Address"] == own_address():
        _write("info.yaml", found[0])


def _write(name: str, document: object) -> None:
    """Replace a file in one step: kine reads it every second, and an empty file names no voter.

    Each thread has an unfinished file of its own, since two threads of the agent write at the same
    time while a node joins.
    """
    unfinished = BACKEND / f"{name}.{threading.get_native_id()}"
    unfinished.write_text(yaml.safe_dump(document, sort_keys=False))
    unfinished.replace(BACKEND / name)


def new(address: str = f"127.0.0.1:{STORE_PORT}") -> None:
    """Begin a store with this node as its only member."""
    shutil.rmtree(BACKEND, ignore_errors=True)
    BACKEND.mkdir(parents=True)
    member = {"Address": address, "ID": 0, "Role": 0}
    _write("info.yaml", member)
    if address.startswith("127."):
        # Without a voter at its first write, an API server would exit after a minute and restart.
        _write("cluster.yaml", [member])


def refuse_to_start() -> None:
    """Record that the installed version does not work with the other members' version.

    The store does not run until another revision is installed.
    """
    found = installed()
    (BACKEND / "refused").write_text(found.revision if found else "")


def command() -> list[str]:
    """Return etcd's command; a store with data continues with them whatever the flags say."""
    refused, found = BACKEND / "refused", installed()
    if refused.exists() and found and refused.read_text() == found.revision:
        return ["sleep", "infinity"]

    address = own_address()
    joins = BACKEND / "joins"
    initial = joins.read_text() if joins.exists() else f"{address}=http://{address}"
    host, beat = address.rpartition(":")[0], 500 if _is_steady() else 100
    clients = ",".join(dict.fromkeys((LOCAL, f"http://{host}:{STORE_CLIENTS}")))

    return [
        *("etcd", "--name", address, "--data-dir", str(BACKEND / "data"), "--unsafe-no-fsync"),
        *(
            "--listen-peer-urls",
            f"http://{address}",
            "--initial-advertise-peer-urls",
            f"http://{address}",
        ),
        *(
            "--listen-client-urls",
            clients,
            "--advertise-client-urls",
            f"http://{host}:{STORE_CLIENTS}",
        ),
        *(
            "--initial-cluster",
            initial,
            "--initial-cluster-state",
            "existing" if joins.exists() else "new",
        ),
        # The heartbeat is slow once others vote: a voter that is slow because this machine plays
        # many hosts should cause no election. A voter that is alone waits for the election timeout
        # before it votes for itself.
        *("--heartbeat-interval", str(beat), "--election-timeout", str(10 * beat), "--pre-vote"),
    ]


def _is_steady() -> bool:
    return (BACKEND / "joins").exists() or (BACKEND / STEADY).exists()


def steady() -> bool:
    """Make elections slow from the next start on, for other voters; say whether that is new."""
    is_new = not _is_steady()
    (BACKEND / STEADY).touch()
    return is_new


def leave_loopback(address: str) -> None:
    """Let others reach the only member; the caller has to restart it."""
    found = members()
    ask_cluster("member/update", {"ID": str(found[0]["ID"]), "peerURLs": [f"http://{address}"]})
    (BACKEND / "info.yaml").write_text(
        yaml.safe_dump({"Address": address, "ID": found[0]["ID"], "Role": 0})
    )


def add(address: str) -> str:
    """Add a spare; return the members as etcd's --initial-cluster.

    etcd allows one learner at a time, so existing spares are promoted first. etcd also waits until
    a learner has caught up and all members were connected for 5 s, which is short on a quiet
    machine. dqlite has no such rules, so callers never see those rejections.
    """
    refused = StoreError()

    def is_added() -> bool:
        nonlocal refused
        try:
            for member in members():
                if member["Role"] == 2:
                    promote(member)
            ask_cluster("member/add", {"peerURLs": [f"http://{address}"], "isLearner": True})
        except StoreError as error:
            refused = error
            return False

        return True

    if not wait_until(is_added, 60):
        raise refused

    return ",".join(f"{member['Address']}=http://{member['Address']}" for member in members())


def promote(member: Member) -> None:
    ask_cluster("member/promote", {"ID": str(member["ID"])})


def is_voter() -> bool:
    return any(member["Address"] == own_address() and member["Role"] == 0 for member in members())


def adjust_roles() -> None:
    """Promote spares until there are three voters, once there are three nodes."""
    found = members()
    spares = [member for member in found if member["Role"] == 2]
    if len(found) >= VOTERS:
        for member in spares[: max(0, VOTERS - len(found) + len(spares))]:
            promote(member)


def remove(address: str, *, elsewhere: bool = False) -> None:
    member = next(member for member in members() if member["Address"] == address)
    ask_cluster("member/remove", {"ID": str(member["ID"])}, elsewhere=elsewhere)


def rest_takes_writes() -> bool:
    """Say whether another member accepts a write: without a leader none does."""
    for address in _known():
        try:
            ask("kv/put", {"key": "bGVmdA==", "value": ""}, at=f"http://{address}:{STORE_CLIENTS}")
        except StoreError:
            continue
        return True
    return False


def others() -> list[str]:
    """Return the addresses of the members on other hosts."""
    own = {f"{address}:{STORE_PORT}" for address in (*addresses(), "127.0.0.1")}
    return [member["Address"] for member in members() if member["Address"] not in own]


def of_this_host() -> list[str]:
    elsewhere = others()
    return [member["Address"] for member in members() if member["Address"] not in elsewhere]
