"""The runner in a task's process on a node, and the programs that it starts there."""
