"""Adapters for other libraries. Importing this package, or one of its parts, changes nothing of them."""
