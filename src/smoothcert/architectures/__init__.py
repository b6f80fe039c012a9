"""Networks by name, and weights on disk."""
