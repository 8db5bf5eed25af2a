"""Jobs to test against. Not part of the installed package."""
