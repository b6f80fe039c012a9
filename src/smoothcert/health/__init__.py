"""Check-up of this machine: what is installed, whether promises hold here, how fast votes are cast, what to change."""

from smoothcert.health.checkup import Checkup, check_up

__all__ = ["Checkup", "check_up"]
