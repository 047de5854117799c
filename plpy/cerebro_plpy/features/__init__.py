"""What a table's columns become: the feature specification, and the arrays that it makes of rows. Pure."""
