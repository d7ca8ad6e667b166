"""Logging and memory formats."""
