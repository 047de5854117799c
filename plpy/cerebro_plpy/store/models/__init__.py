"""SQL on architectures, trained and registered models, and their predictions."""
