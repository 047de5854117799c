"""Search procedures, which decide by the measurements so far what to train next."""
