"""Decoder layer classes of transformers 5.24, by model type.

``_no_split_modules`` of each models/<family>/modeling_<family>.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodels.architecture import Architecture

DECODER_LAYERS: Mapping[str, str] = {
    "bloom": "BloomBlock",
    "cohere": "CohereDecoderLayer",
    "deepseek_v2": "DeepseekV2DecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
    "falcon": "FalconDecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3": "Gemma3DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "glm": "GlmDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "glm4_moe": "Glm4MoeDecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_neox": "GPTNeoXLayer",
    "gpt_oss": "GptOssDecoderLayer",
    "granite": "GraniteDecoderLayer",
    "llama": "LlamaDecoderLayer",
    "llama4_text": "Llama4TextDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "mpt": "MptBlock",
    "olmo": "OlmoDecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "opt": "OPTDecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "stablelm": "StableLmDecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
}


def decoder_layer(arch: Architecture) -> str:
    """The class of a decoder layer in transformers.

    Raises
    ------
    ValueError
        If the family is not known.
    """
    if arch.family not in DECODER_LAYERS:
        known = ", ".join(sorted(DECODER_LAYERS))
        raise ValueError(
            f"{arch.name}: the layer class of family {arch.family} in transformers is not known;"
            f" known are {known}"
        )
    return DECODER_LAYERS[arch.family]
