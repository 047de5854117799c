"""Plain SQL statements, for any driver, that create a small packed table and two configs to train on it."""

from __future__ import annotations

import nets


def statements(settings: str, rows: int) -> tuple[str, ...]:
    """Return the statements for a table of `rows` rows; `settings` are VALUES for `cerebro.settings`."""
    return (
        f"INSERT INTO cerebro.settings VALUES {settings}",
        "CREATE TABLE rows AS SELECT g AS id, array[g % 7, g % 5, g % 3, g % 2]::real[] AS x, g % 2 AS y"
        f" FROM generate_series(1, {rows}) AS g",
        "SELECT cerebro.training_preprocessor_dl('rows', 'packed', 'y', 'x')",
        f"SELECT cerebro.load_keras_model('nets', $${nets.mlp(4, 8, 2)}$$)",
        """SELECT cerebro.load_model_selection_table('nets', 'configs', ARRAY[1], ARRAY[
            $$optimizer='Adam(learning_rate=0.01)',loss='categorical_crossentropy',metrics=['accuracy']$$,
            $$optimizer='SGD(learning_rate=0.1)',loss='categorical_crossentropy',metrics=['accuracy']$$],
            ARRAY['batch_size=16'])""",
    )
