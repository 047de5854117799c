"""SQL on related tables, graphs and series."""
