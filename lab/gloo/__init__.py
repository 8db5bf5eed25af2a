"""Real jobs on gloo that go wrong, under torchrun on one machine, with the Flight Recorder dumps and logs they leave."""
