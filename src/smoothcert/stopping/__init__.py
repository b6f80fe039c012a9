"""Stopping: when enough votes have been cast for one input, and how many to cast at all.

Two ways keep a certificate's promise. *Sequences*: rules look at the votes as they come, and the bound is one that
holds at every look (anytime-valid). *Two stages*: votes of another stream decide on n, then the papers' fixed-n bound
is taken on n fresh ones. See docs/adaptive.md.
"""

from smoothcert.stopping.allocation import Share, allocate
from smoothcert.stopping.base import STOP_RULES, StopRule, parse_rule, parse_rules
from smoothcert.stopping.looks import looks
from smoothcert.stopping.moment import Moment
from smoothcert.stopping.outlook import Outlook
from smoothcert.stopping.sequences import Abstain, Decide, Gain, Grid, Wrong
from smoothcert.stopping.stages import Pilot, Total

__all__ = [
    "STOP_RULES",
    "Abstain",
    "Decide",
    "Gain",
    "Grid",
    "Moment",
    "Outlook",
    "Pilot",
    "Share",
    "StopRule",
    "Total",
    "Wrong",
    "allocate",
    "looks",
    "parse_rule",
    "parse_rules",
]
