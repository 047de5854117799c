-- Made here and not by the control file: the schema is then a member of the extension, goes with it, and
-- nobody can have made it beforehand to keep its ownership.
CREATE SCHEMA cerebro;
COMMENT ON SCHEMA cerebro IS 'Trains many deep nets at once, beside the rows.';
-- For privileges.sql, which runs at updates too; gone at the end of the script.
SET LOCAL cerebro.installing = on;
