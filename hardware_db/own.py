"""Names in a user's file: each means one thing, and none that is already known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hardware_db.files import Raw
from hardware_db.names import normalise, writable

Names = Mapping[str, tuple[str, ...]]


def check_names(path: Path, own: Sequence[Raw], ours: Sequence[Names]) -> None:
    """Ids and short names of the user's entries are new, unique, and can be typed.

    ``name`` and ``aliases`` may repeat a known one, as those of a copied entry do; a text that
    then fits two entries is refused where it is used.

    Parameters
    ----------
    path : Path
        The file, for the message.
    own : sequence of mappings
        All entries of the file.
    ours : sequence of mappings
        What the database holds: every name by id, the short one first.

    Raises
    ------
    ValueError
        One line with the name and what holds it.
    """
    holders = {
        normalise(name): known[0] for names in ours for known in names.values() for name in known
    }
    mine: dict[str, int] = {}
    for number, key, name in _labels(own):
        at = f"{path}: {key} {name!r}"
        wanted = normalise(name)
        if not writable(name):
            raise ValueError(
                f"{at} cannot be typed in --gpus: a name is not auto, does not begin like a count "
                "(8x, x4) and has no '+', ',', ';' or '&'"
            )
        if wanted in holders:
            raise ValueError(f"{at} is taken by the built-in {holders[wanted]}: choose another")
        if mine.setdefault(wanted, number) != number:
            raise ValueError(f"{at} is taken by another entry of this file: choose another")


def _labels(own: Sequence[Raw]) -> Iterator[tuple[int, str, str]]:
    for number, entry in enumerate(own):
        for key in ("id", "short"):
            yield number, key, entry[key]
