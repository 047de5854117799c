"""SQL on packed tables, on the rows to be packed, and on what was counted of them."""
