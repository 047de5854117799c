"""Predicting with trained models, in the caller's session: a table of rows, or one row in any query."""
