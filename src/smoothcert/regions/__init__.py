"""Regions: open sets around an input."""
