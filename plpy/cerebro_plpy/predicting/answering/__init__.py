"""Answers for rows: for one in a query, for a table, for models of groups, and for series."""
