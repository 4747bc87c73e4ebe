"""What a run was: its document, the states between its events, and the facts that follow from them."""
