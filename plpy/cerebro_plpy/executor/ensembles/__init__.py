"""Compares trained models by their answers for rows, and joins the best of them to one net."""
