"""Everything that draws a run: the player, pairs, charts, and the controls beside them."""
