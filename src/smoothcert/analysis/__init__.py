"""Analysis: figures, tables and pictures of runs, computed from their records alone."""
