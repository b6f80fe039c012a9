"""The only place that draws noise and casts votes."""
