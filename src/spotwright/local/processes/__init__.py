"""The engine's side of attempt processes: start orders, fork servers, shims, exit records and recovery."""
