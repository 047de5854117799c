"""What a segment session does, each command as one transaction."""
