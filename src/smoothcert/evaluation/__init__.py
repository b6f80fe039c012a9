"""Evaluation: a data set certified into a run, and a run's stored votes certified anew."""

from smoothcert.evaluation.certification import Choice, Progress, certify_dataset

__all__ = ["Choice", "Progress", "certify_dataset"]
