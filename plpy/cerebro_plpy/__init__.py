"""The package that runs inside the server: in the caller's session and in segment sessions."""
