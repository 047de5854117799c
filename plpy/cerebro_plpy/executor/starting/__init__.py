"""Checks and settles a call before any work is done, and writes down what it asks for."""
