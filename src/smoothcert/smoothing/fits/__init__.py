"""Non-uniform smoothing: one σ vector for a data set, with the largest mean certified area (Tecot et al.)."""
