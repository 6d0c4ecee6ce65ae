"""Container components with podman or docker: container runtimes of this machine, command lines, images."""
