"""Attacks on the soft-smoothed classifier: functions of a model, inputs, labels and fixed noise copies."""

from smoothcert.attacks.ddn import ddn
from smoothcert.attacks.pgd import pgd, pgd_path
from smoothcert.attacks.soft_smoothed import noisy_logits, smoothed_log_probs

__all__ = ["ddn", "noisy_logits", "pgd", "pgd_path", "smoothed_log_probs"]
