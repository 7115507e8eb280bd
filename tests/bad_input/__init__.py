"""Every wrong cluster file, job file and --set flag that we thought of, each with its whole message.

The unit tests load them; the tests of the command line run `BadInput.command()` on them and expect exit code 2.
"""

from tests.bad_input.case import BadInput
from tests.bad_input.cluster_access import CLUSTER_ACCESS
from tests.bad_input.clusters import CLUSTERS
from tests.bad_input.flags import FLAGS
from tests.bad_input.job_parts import JOB_PARTS
from tests.bad_input.jobs import JOBS
from tests.bad_input.kubernetes import KUBERNETES
from tests.bad_input.not_text import NOT_TEXT
from tests.bad_input.yaml_texts import YAML_TEXTS

BAD_INPUT: tuple[BadInput, ...] = (
    *NOT_TEXT,
    *YAML_TEXTS,
    *CLUSTERS,
    *CLUSTER_ACCESS,
    *KUBERNETES,
    *JOBS,
    *JOB_PARTS,
    *FLAGS,
)

__all__ = ["BAD_INPUT", "BadInput"]
