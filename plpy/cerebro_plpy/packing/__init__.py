"""Preprocessors: rows of a user's table become shuffled buffers, dealt to segments."""
