-- cerebro.ensemble takes options as well.
DROP FUNCTION IF EXISTS cerebro.ensemble(varchar, varchar, integer, text, varchar);
