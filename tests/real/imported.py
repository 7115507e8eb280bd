"""All of Trainyard, imported: only the process from which `forked` forks commands imports this."""

import gc
import pkgutil
from importlib import import_module

import trainyard

# The last ones are imported only when they are needed.
OURS = [module.name for module in pkgutil.walk_packages(trainyard.__path__, "trainyard.")]
for name in (
    *OURS,
    "boto3",
    "kubernetes.client",
    "kubernetes.config",
    "kubernetes.stream",
    "rich.console",
    "rich.table",
):
    import_module(name)
# A collection of garbage would copy all of it in every process.
gc.freeze()
