"""Wrong cluster files, job files and --set flags, each with its whole message.

The unit tests load them.
"""

from tests.bad_input.case import BadInput
from tests.bad_input.clusters import CLUSTERS
from tests.bad_input.flags import FLAGS
from tests.bad_input.jobs import JOBS
from tests.bad_input.unreadable import UNREADABLE

BAD_INPUT: tuple[BadInput, ...] = (*UNREADABLE, *CLUSTERS, *JOBS, *FLAGS)

__all__ = ["BAD_INPUT", "BadInput"]
