"""The runner: Trainyard sends it with every run, to run the tasks on Ray."""
