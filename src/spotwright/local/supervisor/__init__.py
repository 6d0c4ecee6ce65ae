"""The processes around user code (fork server, shim, executor), which use only the standard library."""
