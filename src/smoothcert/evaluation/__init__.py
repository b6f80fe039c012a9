"""Data sets certified into runs."""
