"""What the Delta protocol lays down: names, paths, actions, schemas, features."""

from __future__ import annotations
