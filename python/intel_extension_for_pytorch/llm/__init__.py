"""Modules and functions of large language models."""
