"""The words the linter accepts are those of the installed frameworks."""

import dataclasses

import pytest

from planner.lint import accelerate_keys
from planner.lint.deepspeed_words import OPTIMIZERS, SCHEDULERS
from planner.lint.hf_value_rules import FSDP_WORDS
from planner.lint.names import names

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")
deepspeed = pytest.importorskip("deepspeed")


def values(choices):
    return {choice.value for choice in choices}


def test_words_of_the_trainer():
    from transformers.trainer_utils import FSDPOption, SchedulerType
    from transformers.training_args import OptimizerNames

    assert names("hf_optimizers") == values(OptimizerNames)
    assert names("hf_schedulers") == values(SchedulerType)
    assert values(FSDPOption) == FSDP_WORDS


def test_fields_of_the_trainer():
    """The list has older names besides."""
    fields = dataclasses.fields(transformers.Seq2SeqTrainingArguments)
    assert {field.name for field in fields} <= names("trainer")


def test_keys_of_an_accelerate_file():
    from accelerate.commands.config.config_args import ClusterConfig

    known = {field.name for field in dataclasses.fields(ClusterConfig)}
    # process_config turns these two into newer ones
    assert known | {"fp16", "dynamo_backend"} == accelerate_keys.TOP_KEYS


def test_options_of_the_launcher():
    from accelerate.commands.launch import launch_command_parser

    groups = {group.title: group for group in launch_command_parser()._action_groups}
    options = {
        word: {action.dest for action in group._group_actions}
        for title, group in groups.items()
        for word in ("DeepSpeed", "FSDP")
        if title and title.startswith(word)
    }
    assert options["DeepSpeed"] == accelerate_keys.DEEPSPEED_KEYS
    assert options["FSDP"] | {"fsdp_ignored_modules"} == accelerate_keys.FSDP_KEYS


def test_switches_of_the_launchers():
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser

    from planner.advisor.arguments import _LAUNCHER_SWITCHES
    from planner.advisor.flags import flag_name

    for parser in (launch_command_parser(), get_args_parser()):
        for action in parser._actions:
            if action.nargs == 0 and action.dest != "help":
                assert {flag_name(text) for text in action.option_strings} <= _LAUNCHER_SWITCHES


def test_choices_of_the_fsdp_section():
    from accelerate.utils import constants

    for name, key in (
        ("FSDP_AUTO_WRAP_POLICY", "fsdp_auto_wrap_policy"),
        ("FSDP_BACKWARD_PREFETCH", "fsdp_backward_prefetch"),
        ("FSDP_STATE_DICT_TYPE", "fsdp_state_dict_type"),
        ("FSDP_SHARDING_STRATEGY", "fsdp_sharding_strategy"),
    ):
        words = {w for w in accelerate_keys.FSDP_CHOICES[key] if not w.isdigit()}
        assert words == set(getattr(constants, name))


def test_words_of_a_deepspeed_file():
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS
    from deepspeed.runtime.lr_schedules import VALID_LR_SCHEDULES

    assert set(OPTIMIZERS) == set(DEEPSPEED_OPTIMIZERS)
    assert set(SCHEDULERS) == set(VALID_LR_SCHEDULES)


def test_words_of_torch():
    from torch import optim

    from planner.lint import deepspeed_optimizer_rules, deepspeed_scheduler_rules

    def classes(module, base):
        found = (getattr(module, name) for name in dir(module))
        kinds = (item for item in found if isinstance(item, type) and issubclass(item, base))
        return {kind.__name__ for kind in kinds if kind is not base}

    assert set(deepspeed_optimizer_rules._TORCH_OPTIMIZERS) == classes(optim, optim.Optimizer)
    schedulers = classes(optim.lr_scheduler, optim.lr_scheduler.LRScheduler)
    schedulers = {name for name in schedulers if not name.startswith("_")}
    assert schedulers == deepspeed_scheduler_rules._TORCH_SCHEDULERS
