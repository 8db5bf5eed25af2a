"""Small real training jobs under torchrun, each with one real fault, bare or under a wrapper such as `whichrank run`."""
