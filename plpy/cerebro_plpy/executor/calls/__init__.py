"""The calls that train, evaluate and join nets."""
