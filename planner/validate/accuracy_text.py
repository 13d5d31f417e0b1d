"""Fixed texts of the accuracy page."""

NOT_MODELLED = (
    "Step time of mixtures of experts: routing imbalance and grouped products are not measured "
    "widely enough to check; their memory is predicted.",
    "Adapters (LoRA, QLoRA) and quantised base weights.",
    "Which version of a library ran: the same configuration differs by 20 % between releases of "
    "PyTorch in public sweeps.",
    "Contention on shared clusters, stragglers, failures, data loading, checkpoint writing.",
    "The slow mode of public nanotron runs: more than a second on every micro-batch, for some "
    "runs of one layout and not for others, whatever the model's size; code versions, probably. "
    "Half of the runs with stages and replicas but without ZeRO are in it, one in ten of the "
    "others: those have an interval of their own.",
    "Blocks that batches of many lengths leave cached, in plans: fine-tunes on unpadded data "
    "reserve 1.6 to 3.6 times what their longest batch allocates beyond the weights.",
    "Power limits of a card below its specification, and cards sold under the same name with "
    "slower memory, unless a table of runs names them.",
)
HEADER = """# How accurate predictions are

Predictions of the cost models, with constants as shipped, against public measurements that others
made and published. Every figure of this page is written by `python -m planner.validate`; anyone
who has tables of the same columns can repeat it, or run `planner validate` on tables of their own.

Errors are predicted / measured - 1. *Held out*: every fitted constant was fitted again without
the group of runs it is scored on; a group is one model on one cluster with one sequence length and
global batch. *Regret*: the measured time of the layout predicted fastest over the best measured
one, minus one, in groups of at least eight runs; *blind* where the model also decides what fits.
*Rank correlation* is Spearman's. A mean error alone proves little: model FLOPs over 55 % of peak,
times the pipeline's bubble, is 18.5 % off on the layouts study, with a rank correlation of 0.06
and a regret of 28 %. Figures on fewer than 10 runs, or ranks on fewer than 3 groups, are reported,
not judged.
"""
