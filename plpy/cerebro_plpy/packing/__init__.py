"""Preprocessors: rows of a user's table become shuffled buffers, dealt to segments."""

from cerebro_plpy.packing.preprocess import pack_training, pack_validation

__all__ = ["pack_training", "pack_validation"]
