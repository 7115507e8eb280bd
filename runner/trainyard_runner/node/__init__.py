"""The runner in a task's process on a node, and what it starts there."""
