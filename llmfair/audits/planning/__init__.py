"""What an audit will ask, cost and can find, told before it asks; and the instrument held against known truths."""
