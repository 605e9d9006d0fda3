"""What a table needs from time to time, done when it is due.

Each step decides for itself whether there is something to do, by the rules of its own verb: the
plan of an automatic run, the retention, the interval of checkpoints. Schedules take all of them in
one call; sinks take single ones beside their commits.
"""
