"""The work of a segment session, each command as one transaction."""
