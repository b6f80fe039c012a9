"""Training a model on a data set by any registered objective."""
