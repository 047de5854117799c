"""The calls that train and evaluate nets."""
