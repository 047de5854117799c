"""Checks a call and settles its choices before any work is done, and stores what the call asks for."""
