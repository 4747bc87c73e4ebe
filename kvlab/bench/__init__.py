"""Measurements that a person starts: `kvlab bench …`. Nothing here is imported by the lab itself."""
