"""``python -m planner`` and the ``planner`` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C and a closed pipe end it quietly, a full disk in one line."""
    try:
        from planner.cli import app

        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except OSError as error:
        _discard_output()
        sys.stderr.write(f"planner: cannot write the output: {error.strerror or error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _discard_output() -> None:
    """Let the interpreter flush at exit without failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
