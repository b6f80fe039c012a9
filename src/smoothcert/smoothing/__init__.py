"""Smoothed classifiers: PREDICT and CERTIFY for any model, and the plan that states what they promise."""

from smoothcert.smoothing.adaptive import CertifyState, stopping_procedure
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.certifications import Certifications
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.plan import CertifyPlan, TooFewVotesWarning
from smoothcert.smoothing.procedures import decide, predict_procedure

__all__ = [
    "Certification",
    "Certifications",
    "CertifyPlan",
    "CertifyState",
    "Prediction",
    "SmoothedClassifier",
    "TooFewVotesWarning",
    "decide",
    "predict_procedure",
    "stopping_procedure",
]
