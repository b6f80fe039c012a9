"""Databases of region memories, a file for each kind."""
