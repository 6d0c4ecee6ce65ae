"""The ``spotwright`` command and ``python -m spotwright``. Ctrl-C while the command is imported ends it without a traceback."""

import os

__all__ = ["main"]


def main() -> None:
    """Import and run the command line, which exits with the code of its outcome."""
    try:
        from spotwright.cli import main as run_command
    except KeyboardInterrupt:
        os._exit(130)  # no run or write has begun; sys.exit would end by SIGINT in some cases, see interrupts.py
    run_command()


if __name__ == "__main__":
    main()
