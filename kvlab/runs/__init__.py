"""From a scenario file to a recorded run: checked, run to its end or live, forked."""
