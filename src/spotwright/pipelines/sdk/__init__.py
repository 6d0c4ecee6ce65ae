"""Loading and compiling with the KFP SDK, in a process of its own, with its errors explained."""
