"""Units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_db import parse_rate, parse_size
from hardware_db.units import BITS, BYTES, UNITS, to_si

POSITIVE = st.floats(1e-6, 1e9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80GB", 80e9),
        ("80G", 80e9),
        ("80 gb", 80e9),
        ("1.5TiB", 1.5 * 2**40),
        ("512GiB", 512 * 2**30),
        ("2tb", 2e12),
        ("1e3MB", 1e9),
    ],
)
def test_sizes(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("300GB/s", 300e9),
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("400 Gbit/s", 50e9),
        ("1.2TB/s", 1.2e12),
    ],
)
def test_rates(text, value):
    assert parse_rate(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "GB", "-80GB", "0GB", "1e999GB", "nan", "80XB", "80GB/s", "8 0GB", "80GB GB"]
)
def test_bad_sizes(text):
    with pytest.raises(ValueError, match="80GB, 512GiB or 2TB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "-1GB/s", "0Gb/s", "300GB", "300gb/s", "fast"])
def test_bad_rates(text):
    with pytest.raises(ValueError, match="300GB/s"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("parse", "text", "example"),
    [
        (parse_size, "72", "72GiB"),
        (parse_size, " 0.5 ", "0.5GiB"),
        (parse_size, "80000000000", "80000000000B"),
        (parse_rate, "300", "300GB/s"),
        (parse_rate, "3e11", "3e11B/s"),
    ],
)
def test_a_bare_number_is_refused_with_a_text_that_is_accepted(parse, text, example):
    with pytest.raises(ValueError, match=f"write a unit, such as {example}$"):
        parse(text)
    assert parse(example) > 0


@given(POSITIVE, st.sampled_from([parse_size, parse_rate]))
def test_no_bare_number_is_accepted(value, parse):
    with pytest.raises(ValueError, match="write a unit"):
        parse(repr(value))


@given(POSITIVE, st.sampled_from(sorted(UNITS)))
def test_conversion_is_linear(value, unit):
    assert to_si(2 * value, unit) == pytest.approx(2 * to_si(value, unit))


@given(POSITIVE, st.sampled_from(sorted(BYTES)))
def test_what_is_written_is_read(value, unit):
    assert parse_size(f"{value!r}{unit}") == to_si(value, unit)
    assert parse_rate(f"{value!r}{unit}/s") == to_si(value, f"{unit}/s")


@given(POSITIVE, st.sampled_from(sorted(BITS)))
def test_a_byte_is_eight_bits(value, bits):
    assert 8 * to_si(value, f"{bits}/s") == pytest.approx(to_si(value, f"{bits[:-1]}B/s"))


def test_unknown_unit():
    with pytest.raises(ValueError, match="unknown unit 'GBs'"):
        to_si(1, "GBs")
