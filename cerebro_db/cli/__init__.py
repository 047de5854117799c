"""The command `cerebro`, which begins, watches and steers runs from a shell or a script."""
