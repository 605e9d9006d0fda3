"""The fault campaign: random trials of every verb beside writers, with kills and faults.

`python -m campaign --minutes 60` (or `make campaign`) goes on where the last run ended. A trial is
drawn from a seed, so it can be run again; what came of it is a line in the ledger.
"""
