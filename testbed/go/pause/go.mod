module spotwright.dev/testbed/pause

go 1.24
