"""What people read of a cluster: the server beside the controller that serves its runs, and the client of the command line."""
