"""Data-dependent smoothing: for each input the σ at which its certified radius is largest (Alfarra et al. 2020)."""
