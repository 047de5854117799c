-- What a packager wants to know of a server: the extension goes in, finds its Python, and goes out again.
SET client_min_messages = warning;
CREATE EXTENSION cerebro CASCADE;
SELECT cerebro._boot();
SELECT count(*) > 0 AS functions FROM cerebro._usage_functions();
CREATE EXTENSION cerebro_madlib;
DROP EXTENSION cerebro CASCADE;
SELECT to_regnamespace('cerebro') IS NULL AND to_regnamespace('madlib') IS NULL AS gone;
