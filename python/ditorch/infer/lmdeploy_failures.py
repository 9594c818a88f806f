"""An exception inside an operator ends the requests of its batch, not LMDeploy's engine.

The step goes on with zeros, its sequences count as stopped, and their responses are errors with the exception's words.
Needs the model and the engine's loop in one process (one device); else LMDeploy's own way holds: the engine ends.
"""

from __future__ import annotations

import collections
import functools
from typing import Any

import torch


def _works_alone(agent: Any) -> bool:
    """Are the other patches in force, and is there nobody whose step would differ?"""
    own = all(getattr(type(agent), f"_dlinfer_{name}", False) for name in ("async_forward", "get_logits"))
    config = getattr(getattr(agent, "dist_ctx", None), "dist_config", None)
    alone = all(getattr(config, name, 1) == 1 for name in ("tp", "dp", "ep", "world_size"))
    return own and alone and getattr(agent, "dlinfer_failures", None) is not None


def _note(agent: Any, error: Exception) -> None:
    from lmdeploy.pytorch.engine.engine import logger

    agent.dlinfer_failure = f"the model's step raised {type(error).__name__}: {error}"
    logger.error("requests of a batch end: %s", agent.dlinfer_failure)


def catch_forward(old: Any) -> Any:
    """For BaseModelAgent.async_forward."""

    @functools.wraps(old)
    async def async_forward(self: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        try:
            return await old(self, inputs, *given, **named)
        except Exception as error:
            if not _works_alone(self):
                raise
            _note(self, error)
            shape = (*inputs.input_ids.shape, self.model_config.hidden_size)
            hidden = torch.zeros(shape, dtype=self.model_config.dtype, device="cuda")
            batch = inputs.seq_length.shape[0]
            positions = torch.zeros_like(inputs.input_ids)
            return {"hidden_states": hidden, "model_metas": [None] * batch, "seq_length": inputs.seq_length,
                    "position_ids": positions}  # fmt: skip

    return async_forward


def catch_logits(old: Any) -> Any:
    """For BaseModelAgent.get_logits."""

    @functools.wraps(old)
    def get_logits(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        try:
            return old(self, hidden_states)
        except Exception as error:
            if not _works_alone(self):
                raise
            _note(self, error)
            return hidden_states.new_zeros(*hidden_states.shape[:-1], self.model_config.vocab_size)

    return get_logits


def mark_output(old: Any) -> Any:
    """For BaseModelAgent._push_output: sequences of a failed step stop."""

    @functools.wraps(old)
    def push_output(self: Any, output: Any) -> None:
        failure = getattr(self, "dlinfer_failure", None)
        if failure is not None and output.stopped is not None:
            output.stopped = torch.ones_like(output.stopped)
            self.dlinfer_failure = None
        if getattr(self, "dlinfer_failures", None) is not None:
            self.dlinfer_failures.append(failure if output.stopped is not None else None)
        return old(self, output)

    return push_output


def start_agent(old: Any) -> Any:
    """For EngineLoop.start: from now on the loop takes what the agent notes."""

    @functools.wraps(old)
    def start(self: Any, *given: Any, **named: Any) -> Any:
        agent = getattr(self.executor, "model_agent", None)
        if agent is not None and getattr(type(self), "_dlinfer__finish_forward_output", False):
            agent.dlinfer_failure, agent.dlinfer_failures = None, collections.deque()
        return old(self, *given, **named)

    return start


def end_requests(old: Any) -> Any:
    """For EngineLoop._finish_forward_output; `lmdeploy_requests.send_failed` sends the error."""

    @functools.wraps(old)
    def finish_forward_output(self: Any, out: Any, running: Any, *given: Any, **named: Any) -> Any:
        failures = getattr(getattr(self.executor, "model_agent", None), "dlinfer_failures", None)
        failure = failures.popleft() if failures and out is not None else None
        for message in running or () if failure is not None else ():
            message.resp.failed = failure
        return old(self, out, running, *given, **named)

    return finish_forward_output
