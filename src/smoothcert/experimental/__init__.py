"""Works, is tested, and is not needed by anything outside of it."""
