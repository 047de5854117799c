"""Rules of explanations: the row that they begin from, and what each number of a row adds. Pure."""
