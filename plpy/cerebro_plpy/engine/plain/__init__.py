"""Computes usual nets by NumPy while no engine has started, and checks nets of the most usual layers."""
