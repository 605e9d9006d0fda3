"""Proofs that two sets of rows are equal."""

from __future__ import annotations
