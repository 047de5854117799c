"""Explanations of predictions: how much each number of a row adds to a score, and the mean row. Pure."""
