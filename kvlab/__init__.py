"""kvlab: see what a language-model server does when its KV cache runs out."""

__version__ = "0.1.0"
