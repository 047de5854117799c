"""Rules of the registry of models: names, references, the history of aliases. Pure."""
