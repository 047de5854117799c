"""Looks into nets: scores, slopes, and the sizes of weights and gradients."""
