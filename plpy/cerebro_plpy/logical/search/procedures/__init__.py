"""The search procedures, each in a file of its own."""
