"""The bundled model `story`: its text, its tokenizer and its training, all from this package."""
