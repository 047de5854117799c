-- segments_ready shows the processors, too.
DROP FUNCTION IF EXISTS cerebro.segments_ready();
