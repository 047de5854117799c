"""Says what a table's columns become (the feature specification), and makes arrays of rows by it. Pure."""
