"""Classifiers of tables trained on masked, noisy copies of their rows, and the choice of σ and β."""
