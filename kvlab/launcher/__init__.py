"""From a bare Python to a running lab. Standard library only: nothing is installed yet."""
