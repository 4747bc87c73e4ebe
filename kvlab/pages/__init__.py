"""The dashboard's five pages: Story, Lab, Compare, Cost, Delay."""
