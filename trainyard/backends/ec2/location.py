"""A cluster's AWS account, region and owner, and its local files."""

from __future__ import annotations

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

# These variables override AWS_PROFILE, so they are removed if the cluster has a profile.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class Location:
    """A cluster's place in AWS.

    `state` is the directory of the cluster's record. `owner` is this user's
    name as an owner. `account` is the recorded account's id; None before the
    cluster is made. `environ` has the cluster's profile as AWS_PROFILE, for
    boto3 and `ray up`.
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
        """Return the name of the nodes' instance profile."""
        return self.section.instance_profile or naming.role(self.name, self.aws.region)

    @property
    def key_file(self) -> Path:
        if self.section.key_name:
            return Path(self.section.key_file or f"~/.ssh/{self.section.key_name}.pem").expanduser()
        return self.state / "key"

    @property
    def mounted(self) -> Path:
        """Return the directory of token and variables, copied to every node."""
        return self.state / "mounted"

    @property
    def token_file(self) -> Path:
        return self.mounted / "token"

    @property
    def token(self) -> str | None:
        return records.read_token(self.token_file)

    @property
    def log(self) -> Path:
        return self.state / "ray-up.log"

    def known_hosts(self, instance: str) -> Path:
        """Return an instance's own known_hosts: addresses may be reused."""
        return self.state / "hosts" / instance


def find(spec: ClusterSpec, site: Site) -> Location:
    """Return the recorded location, else the file's, without asking AWS.

    Only for the profile, the file takes precedence.
    """
    record = read_cluster(site.state, site.backend) or {}
    region = record.get("region") or spec.ec2.region
    profile = spec.ec2.profile or record.get("profile")
    owner = record.get("owner") or owners.of_directory(site.environ, site.state)

    aws = Aws(site.environ, region=region, profile=profile)
    environ = dict(site.environ)
    if aws.profile:
        for key in _KEYS:
            environ.pop(key, None)
        environ["AWS_PROFILE"] = aws.profile
    return Location(spec.name, aws, site.state, owner, spec.ec2, environ, record.get("account"))


def record_step(location: Location, site: Site) -> Step:
    """Return the step that records the cluster's location.

    Later commands then find the cluster even if its file or the environment
    changes.
    """

    def facts() -> dict[str, Any]:
        aws = location.aws
        place = {"account": aws.caller["Account"], "region": aws.region, "profile": aws.profile}
        return {**place, "owner": location.owner}

    def is_recorded() -> Answer:
        recorded = read_cluster(site.state, site.backend) or {}
        if facts().items() <= recorded.items():
            return YES
        return no("the location is not recorded")

    def write() -> None:
        write_cluster(site.state, site.backend, facts())

    return Step("record-location", "Record the cluster's location", is_recorded, write)


def write_mounted(location: Location, environment: str) -> None:
    """Write the nodes' files: variables, and a token if none exists."""
    location.mounted.mkdir(parents=True, exist_ok=True, mode=0o700)
    location.mounted.chmod(0o700)
    records.make_token(location.token_file)
    write_private(location.mounted / "environment", environment)


def refuse_elsewhere(spec: ClusterSpec, site: Site) -> None:
    """Raise RequestError if the recorded region is not the file's."""
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
    """Ask AWS for the account; raise RequestError if another is recorded."""
    if not location.account:
        return

    account = location.aws.caller["Account"]
    if location.account != account:
        raise RequestError(
            f"cluster {location.name} is in the AWS account {location.account}; these "
            f"credentials are of {account}",
            where=f"profile {location.aws.profile}" if location.aws.profile else None,
            hint="Use the profile or keys that made the cluster: AWS_PROFILE, AWS_ACCESS_KEY_ID.",
        )


def refuse_foreign(location: Location, tags: Mapping[str, str]) -> None:
    """Raise RequestError if tags name another owner, or are not Trainyard's."""
    name = location.name
    if tags.get(naming.CLUSTER) != name:
        raise RequestError(
            f"a cluster {name} that Trainyard did not make is in this account and region",
            hint="Give yours another name (`name:` in its file). To take over and remove the "
            "existing cluster: trainyard cluster.down --adopt",
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
            hint="Use that cluster there, or give yours another name (`name:` in its file). To "
            f"remove that cluster, which ends its runs and loses their outputs: {down}",
        )
