"""Stopping: when enough votes have been cast for one input, and how many to cast at all.

Two ways keep a certificate's promise. *Stop rules* look at the votes as they come, and the bound is one that holds at
every look (anytime-valid). *Budgets* settle n first, perhaps by votes of another stream; then the papers' fixed-n bound
is taken on n fresh ones. See docs/adaptive.md.
"""

from smoothcert.stopping.allocation import Share, allocate
from smoothcert.stopping.base import STOP_RULES, StopRule
from smoothcert.stopping.budgets import BUDGETS, Budget, FixedVotes
from smoothcert.stopping.decisions import Decide, Grid
from smoothcert.stopping.gain import Abstain, Gain
from smoothcert.stopping.looks import looks
from smoothcert.stopping.parsing import Stop, budget_among, parse_stop, parse_stops, stop_rules
from smoothcert.stopping.pilot import Pilot
from smoothcert.stopping.radius_forecast import RadiusForecast
from smoothcert.stopping.total import Total
from smoothcert.stopping.voting_state import VotingState
from smoothcert.stopping.wrong import Wrong

__all__ = [
    "BUDGETS",
    "STOP_RULES",
    "Abstain",
    "Budget",
    "Decide",
    "FixedVotes",
    "Gain",
    "Grid",
    "Pilot",
    "RadiusForecast",
    "Share",
    "Stop",
    "StopRule",
    "Total",
    "VotingState",
    "Wrong",
    "allocate",
    "budget_among",
    "looks",
    "parse_stop",
    "parse_stops",
    "stop_rules",
]
