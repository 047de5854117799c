-- An administrator may name the folder of compiled programs, or none by an empty text.

ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check, DROP CONSTRAINT settings_check;
ALTER TABLE cerebro.settings
    ADD CONSTRAINT settings_name_check CHECK (name IN (
        'backend', 'cache_folder', 'choosing', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters',
        'memory_mb', 'retention_days', 'retries', 'retry_seconds', 'segments', 'sessions', 'threads')),
    ADD CONSTRAINT settings_check
        CHECK (name IN ('backend', 'cache_folder', 'choosing', 'connection') OR value ~ '^[0-9]{1,9}$'),
    ADD CONSTRAINT settings_folder_check CHECK (name <> 'cache_folder' OR value ~ '^(/|$)');
COMMENT ON COLUMN cerebro.settings.name IS 'backend, cache_folder, choosing, connection, idle_minutes, look_seconds, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';
COMMENT ON COLUMN cerebro.settings.value IS 'The value as text; connection is a libpq connection string for segment sessions, cache_folder the path of a folder on each host';
