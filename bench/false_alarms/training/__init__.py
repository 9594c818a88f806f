"""Training as it is done: autocast, checkpointing, losses, attention, norms, optimizers, initialisation, ties.

Every module below adds its scenarios to the list of scenario.py when it is imported.
"""

import false_alarms.training.attention
import false_alarms.training.initialisation
import false_alarms.training.layers
import false_alarms.training.losses
import false_alarms.training.memory
import false_alarms.training.optimizers
import false_alarms.training.ties  # noqa: F401
from false_alarms.training.scenario import run_training

__all__ = ["run_training"]
