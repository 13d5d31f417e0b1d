"""The examples of docs/hardware.md work, and its tables are complete."""

import re
from pathlib import Path

import pytest
import yaml

import hardware_db
from hardware_db import parse_gpus
from hardware_db.files import read
from hardware_db.schema import GpuFile, NodeFile

DOC = Path(hardware_db.__file__).parent.parent / "docs" / "hardware.md"
TEXT = DOC.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "my.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_complete_example(write):
    path = write(EXAMPLES[0])
    commands = re.findall(r"--gpus (\S+) --hardware my.yaml", TEXT)
    assert len(commands) == 2
    for text in commands:
        cluster = parse_gpus(text, extra=path)
        assert (cluster.gpu.id, cluster.node.id) == ("z9-96g", "our-box")
        assert cluster.gpu.memory == 94.5 * 2**30


def test_the_example_has_just_the_required_fields():
    raw = yaml.safe_load(EXAMPLES[0])
    optional = {"intra_bandwidth"}
    for entry, model in ((raw["gpus"][0], GpuFile), (raw["nodes"][0], NodeFile)):
        required = {name for name, f in model.model_fields.items() if f.is_required()}
        assert required == set(entry) - optional


def test_the_gpu_on_a_known_node(write):
    cluster = parse_gpus("8xZ9S", extra=write(EXAMPLES[1]))
    assert (cluster.gpu.id, cluster.node.id) == ("z9s-64g", "dgx-a100-640")
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("model", [GpuFile, NodeFile])
def test_every_field_is_in_the_tables(model):
    for name in set(model.model_fields) - {"sources"}:
        assert re.search(rf"^\| .*`{name}`", TEXT, re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(read("measured", "defaults.yaml")))
def test_defaults_are_as_the_tables_say(name):
    value = read("measured", "defaults.yaml")[name]["value"]
    row = next(line for line in TEXT.splitlines() if re.match(rf"\|.*`{name}`.*\|.*\|.*\|", line))
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert re.search(rf"\b{re.escape(f'{value:g}')}\b", row.rsplit("|", 2)[1])
