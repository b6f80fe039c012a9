"""`smoothcert doctor`: placeholder."""


def doctor() -> None:
    """Check."""
