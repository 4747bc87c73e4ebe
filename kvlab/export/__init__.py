"""Taking a run along: a page, a picture, a storyboard, an embed snippet."""
