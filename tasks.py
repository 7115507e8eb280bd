"""The file in which `invoke` looks for tasks; they are defined in trainyard/tasks/."""

from trainyard.console.signals import end_quietly

end_quietly()

from trainyard.tasks import namespace  # noqa: E402 - Ctrl-C may come during these imports

__all__ = ["namespace"]
