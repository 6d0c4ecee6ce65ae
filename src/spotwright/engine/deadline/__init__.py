"""Events and steps of the fold about deadlines: attempts that are kept or moved while they run, what is seen of spot pools."""
