"""Every figure of a stack's YAML file has a source."""

from __future__ import annotations

from pydantic import BaseModel


def check_sources(profile: BaseModel, sources: dict[str, str]) -> None:
    """Refuse sources of fields there are not, and fields set without a source.

    Raises
    ------
    ValueError
        With the fields.
    """
    unknown = sorted(set(sources) - set(type(profile).model_fields))
    if unknown:
        raise ValueError(f"sources: no such field {', '.join(unknown)}")
    missing = sorted(profile.model_fields_set - set(sources) - {"sources"})
    if missing:
        raise ValueError(f"sources: none given for {', '.join(missing)}")
