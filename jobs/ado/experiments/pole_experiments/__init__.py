"""Experiments for ado."""
