"""The runner's part in Ray workers on nodes, and programs that it starts."""
