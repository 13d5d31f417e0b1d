"""Score the cost models against tables of measured runs.

read_table(path) -> Table                 a CSV of the documented schema, or an oracle table
resolve(row, kinds) -> Run                what a row trained, with what, and what it measured
predict(runs) -> Predictions              every run, vectorised over runs that share a shape
validate(paths) -> (Report, text)         errors, ranks, regret, verdicts, by source and group
"""
