"""What things cost where nothing was measured yet, by engine. `make bench-plan` prints them anew.

Measured on a server of two cores of 2.6 GHz, with one thread. A training coefficient is seconds for each of
`rates.features`: operations of dense, convolution, recurrent, attention and embedding layers, layers, steps,
parameters, numbers passed on, and one mini-batch.
"""

TRAINING = {
    "tensorflow": (6e-11, 1e-10, 1e-10, 1e-10, 4e-9, 3e-5, 2e-5, 6e-10, 1e-9, 2.5e-4),
    "jax": (6e-11, 1.6e-10, 1e-10, 1e-10, 4e-9, 8e-6, 1.5e-5, 6e-10, 5e-10, 1e-4),
    "torch": (6e-11, 1.2e-10, 1e-10, 1e-10, 4e-9, 8e-5, 6e-5, 8e-10, 1e-9, 8e-4),
}
EVALUATION = {
    "tensorflow": (2e-11, 3e-11, 3e-11, 3e-11, 1e-9, 1e-5, 8e-6, 0.0, 3e-10, 2e-4),
    "jax": (2e-11, 5e-11, 3e-11, 3e-11, 1e-9, 3e-6, 5e-6, 0.0, 2e-10, 1e-4),
    "torch": (2e-11, 4e-11, 3e-11, 3e-11, 1e-9, 3e-5, 2e-5, 0.0, 3e-10, 3e-4),
}
# For a net, and for each of its layers.
COMPILING = {"tensorflow": (0.7, 0.08), "jax": (0.4, 0.06), "torch": (0.05, 0.01)}
STARTING = {"tensorflow": 4.0, "jax": 2.5, "torch": 3.5}
# Seconds for a state, and for each byte of it; between two visits; for a MB of rows.
WRITING, WRITING_BYTE, RESTING, READING = 0.002, 8e-9, 0.004, 0.004
# The arithmetic of so many threads takes 1 / threads**SHARING of the time.
SHARING = 0.8
# MB of a session's own memory with its engine, and for each net that it has compiled.
SESSION_MB = {"tensorflow": 420, "jax": 300, "torch": 350}
COMPILED_MB = {"tensorflow": 12, "jax": 6, "torch": 2}
