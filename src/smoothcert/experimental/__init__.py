"""Works, is tested, and is not needed by anything in the front row."""
