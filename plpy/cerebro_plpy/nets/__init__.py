"""Nets as Keras' JSON, from a line of layers or by name, to fit a packed table. Pure."""
