"""Search procedures: what to train next, decided from what has been measured."""
