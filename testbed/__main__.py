"""The command of the test bed: `python -m testbed --help`."""

from testbed.cli import main

main()
