"""Runs on disk: what was asked (the manifest) and what came out (the journal), safe against a kill."""
