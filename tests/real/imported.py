"""Import all of Trainyard; only the process that `forked` forks commands from imports this."""

import gc
import pkgutil
from importlib import import_module

import trainyard

# The modules below are imported only when they are needed.
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
# Frozen objects are not collected: a collection in a fork would copy their pages.
gc.freeze()
