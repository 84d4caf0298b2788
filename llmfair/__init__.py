"""Measures whether a ranker built on a large language model treats groups of items alike."""

__version__ = "0.1.0"
