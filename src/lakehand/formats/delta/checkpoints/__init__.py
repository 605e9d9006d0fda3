"""Folding the log into checkpoints that every engine reads."""

from __future__ import annotations
