"""Predicates: parsed with sqlglot, decided from statistics where they can be."""

from __future__ import annotations
