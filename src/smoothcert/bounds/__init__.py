"""Bounds: from a tally and α to probability bounds that hold together with probability at least 1−α.

Pure float64 statistics, rounded outwards. Every bound takes the class to certify as given: it must have been
chosen without looking at the tally (:mod:`smoothcert.smoothing` draws it from another stream).
"""

from smoothcert.bounds.anytime import mixture_lower, mixture_upper
from smoothcert.bounds.base import BOUNDS, Bound, ClassBounds, VoteKind
from smoothcert.bounds.exact import (
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    top_two_p_value,
    two_class,
)
from smoothcert.bounds.least import least_prediction_votes, least_votes, unanimous

__all__ = [
    "BOUNDS",
    "Bound",
    "ClassBounds",
    "VoteKind",
    "clopper_pearson",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "least_prediction_votes",
    "least_votes",
    "mixture_lower",
    "mixture_upper",
    "top_two_p_value",
    "two_class",
    "unanimous",
]
