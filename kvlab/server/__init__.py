"""Who serves the pages, and to whom: seats, kernels, frames, identity."""
