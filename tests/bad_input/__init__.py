"""Every wrong cluster file, job file and --set flag that we thought of, each with its whole
message.

The unit tests load them.
"""

from tests.bad_input.case import BadInput
from tests.bad_input.clusters import CLUSTERS
from tests.bad_input.flags import FLAGS
from tests.bad_input.jobs import JOBS
from tests.bad_input.unreadable import UNREADABLE

BAD_INPUT: tuple[BadInput, ...] = (*UNREADABLE, *CLUSTERS, *JOBS, *FLAGS)

__all__ = ["BAD_INPUT", "BadInput"]
