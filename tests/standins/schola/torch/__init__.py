"""Stand-in for PyTorch, for code that only imports it.

Every name in it is a class, which can be called or derived from.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

__version__ = "2.10.0"


class _Named(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (_Thing,), {})


class _Thing(metaclass=_Named):
    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    # An instance also serves as a decorator, as in @torch.no_grad().
    def __call__(self, decorated: Any = None, *given: Any, **named: Any) -> Any:
        return decorated


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("torch."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = __getattr__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def __getattr__(name: str) -> Any:
    return getattr(_Thing, name)


sys.meta_path.insert(0, _Modules())
