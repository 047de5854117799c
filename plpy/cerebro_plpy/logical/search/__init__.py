"""Search procedures: they decide what to train next from what has been measured."""
