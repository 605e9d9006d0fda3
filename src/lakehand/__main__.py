"""`python -m lakehand` is the command."""

from __future__ import annotations

from lakehand.cli.main import main

if __name__ == "__main__":
    main()
