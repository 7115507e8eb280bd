"""The costs of Trainyard next to those of the tools that it calls: ratios of one run."""
