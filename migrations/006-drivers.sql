-- Which sessions stand behind a run. An advisory lock alone proves nothing: code of a caller's that a session runs may take any.

CREATE TABLE cerebro._driver (
    run_id bigint PRIMARY KEY,
    pid integer NOT NULL,
    lock bigint NOT NULL,
    driver integer NOT NULL,
    sessions integer [] NOT NULL,
    at timestamptz NOT NULL
);
COMMENT ON TABLE cerebro._driver IS 'The sessions behind each run: pid is the one that holds the advisory lock, with lock as the lower half of its key; driver the one that decides what is done next; sessions those that train; at is when all of them were there.';

ALTER TABLE cerebro._driver ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._driver USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _driver.run_id));

-- How long code behind a table may take to let a run read it.
ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check;
ALTER TABLE cerebro.settings ADD CONSTRAINT settings_name_check CHECK (name IN (
    'backend', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters', 'memory_mb', 'retention_days', 'retries',
    'retry_seconds', 'segments', 'sessions', 'threads'));
COMMENT ON COLUMN cerebro.settings.name IS 'backend, connection, idle_minutes, look_seconds, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';
