"""Runs that exist already, measured again without asking anybody."""
