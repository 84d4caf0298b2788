"""Remedies for a listwise run, side by side: what each buys and costs, on the same queries."""
