"""Models of any make as one row-wise function."""
