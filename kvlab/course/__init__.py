"""What the lessons say and ask: chapters, questions, comparisons, the cost model on paper."""
