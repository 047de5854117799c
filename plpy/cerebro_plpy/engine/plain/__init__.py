"""Computes usual nets by NumPy while no engine has started, and checks usual nets and starting points."""
