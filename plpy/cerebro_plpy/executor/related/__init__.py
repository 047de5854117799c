"""Features over foreign keys and along edges, from labels to predictions."""
