-- How long a run that goes on waits for a server that refuses a new session.

ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check;
ALTER TABLE cerebro.settings ADD CONSTRAINT settings_name_check CHECK (name IN (
    'backend', 'connection', 'idle_minutes', 'max_parameters', 'memory_mb', 'retention_days', 'retries',
    'retry_seconds', 'segments', 'sessions', 'threads'));
COMMENT ON COLUMN cerebro.settings.name IS 'backend, connection, idle_minutes, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';
