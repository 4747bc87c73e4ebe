"""Llama-family checkpoints: found, read, loaded, and their tokenizers."""
