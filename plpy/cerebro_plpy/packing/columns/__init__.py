"""Settles what each column of a table becomes."""
