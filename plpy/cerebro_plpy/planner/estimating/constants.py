"""The shipped costs of each engine, for what this server has not measured yet.

They were measured on a server of two cores, with one thread: `make bench-plan ARGS=--constants` prints
them anew. Each engine has a coefficient, in seconds, for each of the terms that `rates.features` counts: an
operation of a dense, convolution, recurrent, attention or embedding layer, a layer, a step of
recurrence, a parameter, a number passed on, and a mini-batch.
"""

TRAINING = {
    "tensorflow": (3.5e-11, 1.9e-11, 9.4e-11, 1e-10, 0.0, 1.7e-4, 1.1e-4, 0.0, 3.1e-9, 3.4e-4),
    "jax": (1.1e-10, 2.9e-10, 1e-10, 1e-10, 1e-9, 2.8e-5, 1e-5, 2e-10, 1.4e-9, 7e-5),
    "torch": (1.2e-10, 1.2e-10, 1e-10, 1e-10, 4e-9, 8e-5, 6e-5, 8e-10, 1e-9, 8e-4),
}
EVALUATION = {
    "tensorflow": (9.9e-12, 1.4e-11, 5.4e-11, 5e-11, 0.0, 5.6e-4, 0.0, 0.0, 0.0, 3.6e-5),
    "jax": (3.9e-11, 3.8e-11, 3.6e-11, 4e-11, 5e-10, 3.1e-4, 0.0, 0.0, 0.0, 1e-4),
    "torch": (4e-11, 4e-11, 4e-11, 4e-11, 1e-9, 4e-4, 0.0, 0.0, 0.0, 3e-4),
}
# For a net, and for each of its layers.
COMPILING = {"tensorflow": (0.8, 0.02), "jax": (3.5, 0.1), "torch": (0.05, 0.01)}
STARTING = {"tensorflow": 3.0, "jax": 2.5, "torch": 3.5}
# Seconds for a state, and for each byte of it; between two visits; for a MB of rows.
WRITING, WRITING_BYTE, RESTING, READING = 0.0006, 4.8e-9, 0.0017, 0.005
# The time of a small net's mini-batch in a fused program, as a share of its time alone; the largest state, in
# bytes, of such a net.
FUSED_SHARE, LARGEST_FUSED = 0.5, 256 * 1024
# Seconds before the first visit and after the last, and for each config.
AROUND, AROUND_CONFIG = 0.2, 0.015
# Seconds around each config on each of many groups, whose rows are written together.
AROUND_GROUP = 0.0015
# With several threads, arithmetic takes 1 / threads**SHARING of the time.
SHARING = 0.8
# MB of a session's own memory with its engine, and for each kind of configs that it has compiled code for.
SESSION_MB = {"tensorflow": 420, "jax": 250, "torch": 350}
COMPILED_MB = {"tensorflow": 12, "jax": 15, "torch": 2}
