"""In which account and region a cluster is, whose it is, and what is kept about it here."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.backends.contract import Site
from trainyard.backends.ec2 import naming
from trainyard.backends.shared import owner as owners
from trainyard.backends.shared import record as records
from trainyard.backends.shared.record import read_cluster, write_cluster, write_private
from trainyard.errors import RequestError
from trainyard.seams.aws import Aws
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.ec2 import Ec2Section
from trainyard.steps import YES, Answer, Step, no

# In the environment these win over a profile that is named there.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class Location:
    """A cluster's place in AWS.

    `state` is its directory on this machine; `owner` names this user and machine to others.
    `account` is the AWS account that it was made in, None before. `environ` names the profile that
    the cluster file names, also to boto3 elsewhere, and to `ray up`.
    """

    name: str
    aws: Aws
    state: Path
    owner: str
    section: Ec2Section
    environ: Mapping[str, str]
    account: str | None = None

    @property
    def key_name(self) -> str:
        return self.section.key_name or naming.resource(self.name)

    @property
    def profile(self) -> str:
        """Return the instance profile of the nodes: the file's, or Trainyard's."""
        return self.section.instance_profile or naming.role(self.name, self.aws.region)

    @property
    def key_file(self) -> Path:
        """Return the private key of the instances: the file's, or Trainyard's."""
        if self.section.key_name:
            return Path(self.section.key_file or f"~/.ssh/{self.section.key_name}.pem").expanduser()
        return self.state / "key"

    @property
    def mounted(self) -> Path:
        """Return the directory that every node gets: token and variables."""
        return self.state / "mounted"

    @property
    def token_file(self) -> Path:
        return self.mounted / "token"

    @property
    def token(self) -> str | None:
        return records.read_token(self.token_file)

    @property
    def log(self) -> Path:
        """Return what the newest `ray up` printed."""
        return self.state / "ray-up.log"

    def known_hosts(self, instance: str) -> Path:
        """Return the file that holds an instance's host key: the next one may have its address."""
        return self.state / "hosts" / instance


def find(spec: ClusterSpec, site: Site) -> Location:
    """Return where the cluster was made, or is to be made; nothing is asked yet."""
    record = read_cluster(site.state, site.backend) or {}
    region = record.get("region") or spec.ec2.region
    profile = spec.ec2.profile or record.get("profile")
    # As it was on `up`; else this host, and the directory of clusters there.
    owner = record.get("owner") or owners.given(site.environ)
    owner = owner or f"{socket.gethostname()}:{site.state.parent.absolute()}"

    aws = Aws(site.environ, region=region, profile=profile)
    environ = dict(site.environ)
    if aws.profile:
        for key in _KEYS:
            environ.pop(key, None)
        environ["AWS_PROFILE"] = aws.profile
    return Location(spec.name, aws, site.state, owner, spec.ec2, environ, record.get("account"))


def record_step(location: Location, site: Site) -> Step:
    """Return the first step: the cluster is found even if its file or the environment changes."""

    def facts() -> dict[str, Any]:
        aws = location.aws
        place = {"account": aws.caller["Account"], "region": aws.region, "profile": aws.profile}
        return {"name": location.name, **place, "owner": location.owner}

    def is_recorded() -> Answer:
        recorded = read_cluster(site.state, site.backend) or {}
        if facts().items() <= recorded.items():
            return YES
        return no("it is not written down")

    def write() -> None:
        write_cluster(site.state, site.backend, facts())

    return Step("record-location", "Write down where it is", is_recorded, write)


def write_mounted(location: Location, environment: str) -> None:
    """Write what every node gets; a token is made once."""
    location.mounted.mkdir(parents=True, exist_ok=True, mode=0o700)
    location.mounted.chmod(0o700)
    records.make_token(location.token_file)
    write_private(location.mounted / "environment", environment)


def refuse_elsewhere(spec: ClusterSpec, site: Site) -> None:
    """Raise RequestError if the cluster is in another region than its file now asks for."""
    record = read_cluster(site.state, site.backend)
    if record and spec.ec2.region not in (None, record["region"]):
        raise RequestError(
            f"cluster {spec.name} is in the region {record['region']}; now {spec.ec2.region} is "
            "asked for",
            where=str(site.source) if site.source else None,
            hint="Remove it there first: trainyard cluster.down --set "
            f"ec2.region={record['region']}",
        )


def refuse_other_account(location: Location) -> None:
    """Raise RequestError if these credentials are not of the cluster's account; asks AWS."""
    if not location.account:
        return

    account = location.aws.caller["Account"]
    if location.account != account:
        raise RequestError(
            f"cluster {location.name} is in the AWS account {location.account}; these "
            f"credentials are of {account}",
            where=f"profile {location.aws.profile}" if location.aws.profile else None,
            hint="Use the profile, or the keys, that made it: AWS_PROFILE, AWS_ACCESS_KEY_ID.",
        )


def refuse_foreign(location: Location, tags: Mapping[str, str]) -> None:
    """Raise RequestError if something with these tags is another owner's, or not Trainyard's."""
    name = location.name
    if tags.get(naming.CLUSTER) != name:
        raise RequestError(
            f"a cluster {name} that Trainyard did not make is in this account and region",
            hint="Give yours another name (`name:` in its file). To take that one over, and "
            "remove it: trainyard cluster.down --adopt",
        )

    maker = tags.get(naming.OWNER)
    if maker != location.owner:
        aws = location.aws
        down = f"trainyard cluster.down --set name={name} --backend ec2"
        down += f" --set ec2.region={aws.region}"
        if aws.profile:
            down += f" --set ec2.profile={aws.profile}"
        raise RequestError(
            f"cluster {name} was made by {maker}, where its key and its token are",
            where=f"you are {location.owner}",
            hint="Use it there, or give yours another name (`name:` in its file). Runs there "
            f"end, and their outputs are lost, if you remove it: {down}",
        )
