"""The processes around user code (fork server, shim, executor), which run on the standard library alone."""
