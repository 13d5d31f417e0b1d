"""Each file of a bundle by itself: JSON, YAML, shell and Python."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess

from planner.verify_bundle import Bundle, Finding, named, verdict
from planner.verify_emitted import DuplicateKey, repeated_yaml_keys, unique

SHELL_SECONDS = 60.0  # a script is checked in far less


def check_json(bundle: Bundle) -> Finding:
    """Every JSON file is JSON, no key given twice."""
    wrong = []
    for name in named(bundle, ".json"):
        try:
            bundle.json[name] = json.loads(bundle.texts[name], object_pairs_hook=unique)
        except (DuplicateKey, RecursionError) as error:
            wrong.append(f"{name}: {error}")
        except json.JSONDecodeError as error:
            wrong.append(f"{name} line {error.lineno}: {error.msg}")
    return verdict(wrong, f"{len(bundle.json)} files")


def check_yaml(bundle: Bundle) -> Finding:
    """Every YAML file is YAML, no key given twice."""
    import yaml

    wrong, names = [], [*named(bundle, ".yaml"), *named(bundle, ".yml")]
    for name in names:
        try:
            list(yaml.safe_load_all(bundle.texts[name]))
            wrong += [f"{name}: {text}" for text in repeated_yaml_keys(bundle.texts[name])]
        except (yaml.YAMLError, RecursionError) as error:
            wrong.append(f"{name}: {' '.join(str(error).split())}")
    return verdict(wrong, f"{len(names)} files") if names else ("skipped", "no YAML files")


def check_shell(bundle: Bundle) -> Finding:
    """Shell scripts parse, and shellcheck warns of nothing where it is installed."""
    scripts = [*named(bundle, ".sh"), *named(bundle, ".sbatch")]
    if not scripts:
        return "skipped", "no shell scripts"
    tools = [
        ("bash", "-n"),
        *([("shellcheck", "-s", "bash", "-S", "warning")] if shutil.which("shellcheck") else []),
    ]
    wrong = []
    for name in scripts:
        for tool in tools:
            answer = subprocess.run(
                [*tool, str(bundle.folder / name)],
                capture_output=True,
                text=True,
                timeout=SHELL_SECONDS,
                check=False,
            )
            if answer.returncode:
                said = (answer.stdout + answer.stderr).strip().splitlines()
                wrong.append(f"{tool[0]}: {' '.join(said[:3])}")
    without = "" if len(tools) > 1 else ", without shellcheck (not installed)"
    return verdict(wrong, f"{', '.join(scripts)}{without}")


def check_python(bundle: Bundle) -> Finding:
    """Python files parse."""
    wrong, names = [], list(named(bundle, ".py"))
    for name in names:
        try:
            ast.parse(bundle.texts[name], filename=name)
        except SyntaxError as error:
            wrong.append(f"{name} line {error.lineno}: {error.msg}")
        except (ValueError, RecursionError) as error:  # a NUL, or too deep
            wrong.append(f"{name}: {error}")
    return verdict(wrong, f"{len(names)} files") if names else ("skipped", "no Python files")
