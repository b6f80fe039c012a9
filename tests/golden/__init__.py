"""Pinned votes and results: what a change of the code's structure must leave as it is (see README.md)."""
