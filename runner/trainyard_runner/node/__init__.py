"""The part of the runner that runs in Ray workers on nodes, and the programs that it starts."""
