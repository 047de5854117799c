"""Packs and predicts the rows of a cluster on the segments where they are stored."""
