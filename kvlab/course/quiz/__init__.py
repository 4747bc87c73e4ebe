"""The quiz: what a class knows before and after, asked with numbers of real runs."""
