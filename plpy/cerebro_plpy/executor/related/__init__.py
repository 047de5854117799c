"""Features over foreign keys and along edges of graphs, from labels to predictions."""
