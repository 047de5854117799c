"""SQL on runs: their rows, states, measurements, decisions, and the tables that they leave."""
