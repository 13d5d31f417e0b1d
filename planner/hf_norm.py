"""The norms' epsilon of a config.json: under which key each family keeps it, and its default.

Both are those of transformers 5.24, ``src/transformers/models/<family>/configuration_*.py``.
"""

from __future__ import annotations

from planner.hf_keys import Keys

USUAL_KEY = "rms_norm_eps"
KEYS = {
    **dict.fromkeys(("bert", "cohere", "gpt_neox", "phi", "stablelm"), "layer_norm_eps"),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "mpt"), "layer_norm_epsilon"),
    "starcoder2": "norm_epsilon",
    "opt": "",  # its modeling file leaves torch.nn.LayerNorm at the default
}
TORCH = 1e-5  # torch.nn.LayerNorm
USUAL = 1e-5
DEFAULTS = {
    "bert": 1e-12,
    **dict.fromkeys(("glm", "glm4"), 1.5625e-7),
    **dict.fromkeys(
        (
            *("deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3_text", "llama", "mistral"),
            *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
        ),
        1e-6,
    ),
}


def epsilon_key(family: str) -> str:
    """The key of a family's configuration; empty where it has none."""
    return KEYS.get(family, USUAL_KEY)


def norm_epsilon(keys: Keys, family: str) -> float:
    """Added to the variance under the root of every norm. [-]"""
    key = epsilon_key(family)
    return keys.number(key, default=DEFAULTS.get(family, USUAL)) if key else TORCH
