"""Compares trained models by their answers, and joins the best of them."""
