"""Runs on disk: what was asked (the manifest) and what came out (the journal), safe against a kill."""

from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, claim_run, create_run, open_run, read_run, reserve_run

__all__ = [
    "Journal",
    "Manifest",
    "Record",
    "Run",
    "claim_run",
    "create_run",
    "open_run",
    "read_run",
    "reserve_run",
]
