"""How queries' values become one figure of them all: aggregates, which measures name, and what they are made of."""
