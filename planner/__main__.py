"""``python -m planner`` and the ``planner`` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; a closed pipe or Ctrl-C ends it quietly."""
    from planner.cli import app

    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
