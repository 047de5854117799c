-- Only the owner reads and changes settings: pg_read_all_data would read a connection string, pg_write_all_data redirect it.

ALTER TABLE cerebro.settings ENABLE ROW LEVEL SECURITY;
