"""Stop rules and budgets: when enough votes have been cast for an input, and how many to cast at all."""
