"""The feature specification: what a table's columns become, and the arrays that it makes of rows. Pure."""
