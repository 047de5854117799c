"""Computes usual nets by NumPy, while no engine has started."""
