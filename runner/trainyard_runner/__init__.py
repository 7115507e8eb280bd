"""The runner, which Trainyard sends with every run to run the tasks on Ray."""
