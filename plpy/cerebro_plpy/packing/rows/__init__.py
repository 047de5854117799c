"""Reads, sorts, deals and decodes rows."""
