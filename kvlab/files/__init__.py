"""What comes from outside and goes out: plain data, checked against schemas, written whole."""
