"""What every audit does with one run: hold its folder, ask, stop, follow it again, show its evidence."""
