"""Bounds: from a tally and α to probability bounds that hold together with probability at least 1−α."""
