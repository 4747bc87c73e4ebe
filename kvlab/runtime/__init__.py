"""Where KV lies and a model computes: pools in memory, attention, copies between the pools."""
