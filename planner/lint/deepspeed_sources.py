"""Files of DeepSpeed and Hugging Face that rules on DeepSpeed files cite."""

from __future__ import annotations

ZERO = "zero_optimization"
CONFIG = "DeepSpeed 0.19.8, deepspeed/runtime/config.py"
UTILS = "DeepSpeed 0.19.8, deepspeed/runtime/config_utils.py"
ENGINE = "DeepSpeed 0.19.8, deepspeed/runtime/engine.py"
ZERO_FOLDER = "DeepSpeed 0.19.8, deepspeed/runtime/zero/"
ZERO_CONFIG = f"{ZERO_FOLDER}config.py"
HF_DEEPSPEED = "transformers 5.24.0, src/transformers/integrations/deepspeed.py"
