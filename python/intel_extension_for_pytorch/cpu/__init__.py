"""Running models on the CPU."""
