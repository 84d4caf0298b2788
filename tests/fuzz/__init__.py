"""Seeded hostile inputs: each module here with `prepare` and `case` generates some, and `running` runs them."""
