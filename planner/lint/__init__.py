"""Rules on documents: what frameworks accept, ignore and refuse in their configuration files.

Examples
--------
>>> from planner.lint import lint_deepspeed
>>> [f.id for f in lint_deepspeed({"gradient_accumulation_steps": 4, "bf16": {"enabled": True}})]
['ds-batch-missing']
"""

from planner.lint.context import Context, Device
from planner.lint.document import Document
from planner.lint.finding import Edit, Finding
from planner.lint.run import lint, lint_deepspeed

__all__ = ["Context", "Device", "Document", "Edit", "Finding", "lint", "lint_deepspeed"]
