"""Smoothed classifiers and the plan that states what they promise."""
