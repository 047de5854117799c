"""The command `cerebro`: what a shell and its scripts can do with runs."""
