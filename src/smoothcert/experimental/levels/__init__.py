"""σ levels: one classifier whose σ follows the input, without a memory.

A chooser is smoothed by its median, and the level it gives is the σ of the classifier that answers. Near an input the
median can only move so far, so a certificate at every level that it can reach is one for the whole.
"""
