"""The engine: scheduler, block tables, swap. No torch: a Runner stores KV and computes."""
