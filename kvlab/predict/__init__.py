"""A GPU server predicted: vLLM's schedule, step by step, with a clock for the card and the model.

`workload` reads what came in, `cards`, `models` and `pool` say what it runs on, `tables`, `attention`
and `clock` how long a step takes, `fast` schedules without events, `replay` drives it by the clock,
`outcome` counts, `plan` and `helped` ask what would fit and what would have helped.
assets/docs/predicting.md has every term with its source, what was fitted on what, and the errors.
"""
