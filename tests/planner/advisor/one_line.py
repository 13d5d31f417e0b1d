"""Errors for users are one line."""

from __future__ import annotations


def one_line(error: Exception) -> None:
    """Fail unless the message is one short line."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 400
