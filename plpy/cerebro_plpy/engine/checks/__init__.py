"""Reads architectures and parameters as data, and refuses what could run code or cannot train."""
