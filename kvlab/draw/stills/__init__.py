"""A run as a still: pictures and storyboards in SVG, a pure function of (trace, cursor)."""
