"""Divides rows: into folds and groups, and into rows to train on and rows to test on."""
