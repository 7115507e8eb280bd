"""Cluster file, job file and image file -> frozen, validated models, or every problem with them at
once.
"""
