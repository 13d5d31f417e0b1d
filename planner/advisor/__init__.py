"""Judge and improve configurations people already have.

>>> from planner import advise
>>> report = advise("ds_config.json", gpus="8xA100-40G")  # doctest: +SKIP
"""
