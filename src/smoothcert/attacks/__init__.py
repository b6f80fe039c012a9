"""Attacks on the smoothed classifier: functions of a model, inputs, labels and fixed noise copies."""

from smoothcert.attacks.ddn import ddn
from smoothcert.attacks.nes import nes
from smoothcert.attacks.pgd import pgd, pgd_path
from smoothcert.attacks.soft_smoothed import noisy_logits, smoothed_log_probs

__all__ = ["ddn", "nes", "noisy_logits", "pgd", "pgd_path", "smoothed_log_probs"]
