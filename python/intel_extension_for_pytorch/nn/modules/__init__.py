"""Modules for eager mode."""
