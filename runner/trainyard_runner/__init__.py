"""The runner: travels with every run and runs its tasks on Ray. Standard library and ray only."""
