"""Where the votes of a task are cast: threads, processes of this machine, or a Ray cluster."""
