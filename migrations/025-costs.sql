-- An administrator may say what an hour of a core or GPU costs, and what power they take.

ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check, DROP CONSTRAINT settings_check;
ALTER TABLE cerebro.settings
    ADD CONSTRAINT settings_name_check CHECK (name IN (
        'backend', 'cache_folder', 'choosing', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters',
        'memory_mb', 'price_per_core_hour', 'price_per_gpu_hour', 'retention_days', 'retries', 'retry_seconds', 'segments',
        'sessions', 'threads', 'watts_per_core', 'watts_per_gpu')),
    ADD CONSTRAINT settings_check
        CHECK (name IN ('backend', 'cache_folder', 'choosing', 'connection') OR name ~ '^(price|watts)_' OR value ~ '^[0-9]{1,9}$'),
    ADD CONSTRAINT settings_cost_check
        CHECK (name !~ '^(price|watts)_' OR value ~ '^[0-9]{1,9}([.][0-9]{1,9})?$');
COMMENT ON COLUMN cerebro.settings.name IS 'backend, cache_folder, choosing, connection, idle_minutes, look_seconds, max_parameters, memory_mb, price_per_core_hour, price_per_gpu_hour, retention_days, retries, retry_seconds, segments, sessions, threads, watts_per_core or watts_per_gpu';
