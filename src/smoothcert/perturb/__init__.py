"""Perturbations: what is added to inputs, and their theorems."""
