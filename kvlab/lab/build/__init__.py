"""Build it yourself: a small engine whose pieces a learner writes, run on the real model and checked."""
