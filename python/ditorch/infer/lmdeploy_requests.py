"""One request of LMDeploy must not end the engine: what would raise inside its loops is refused when the request
arrives, with a sentence in the log that names the argument, and what a caller's own function raises ends its request
alone."""

from __future__ import annotations

import json
import os
from typing import Any


def _name_format_error(chosen: Any) -> str | None:
    """Would the guided decoder be unable to compile this response_format?"""
    if not isinstance(chosen, dict) or chosen.get("type", "text") == "text":
        return None
    import xgrammar

    kind = chosen["type"]
    try:
        if kind == "json_schema":
            schema = chosen["json_schema"]
            if isinstance(schema, dict):
                schema = schema.get("schema", schema.get("json_schema", schema))
            xgrammar.Grammar.from_json_schema(schema if isinstance(schema, str) else json.dumps(schema))
        elif kind == "regex_schema":
            xgrammar.Grammar.from_regex(chosen["regex_schema"])
        elif kind == "structural_tag":
            tag = chosen["structural_tag"]
            xgrammar.Grammar.from_structural_tag(tag if isinstance(tag, str) else json.dumps(tag))
        elif kind != "json_object":
            return (
                f"'response_format' is of type {kind!r}; valid: json_schema, regex_schema, json_object, structural_tag"
            )
    except KeyError as missing:
        return f"'response_format' has no {missing}"
    except Exception as error:  # of xgrammar's C++ side: several types
        return f"'response_format' cannot be used: {str(error).strip()}"
    return None


def name_error(data: dict[str, Any], vocabulary: int, most: int) -> str | None:
    """What is wrong with a request: its tokens, the tokens of its settings, the form of its answer."""
    tokens, settings = data["token_ids"], data["sampling_param"]
    if len(tokens) == 0:
        return "'input_ids' is empty"
    if len(tokens) > most:
        return f"'input_ids' has {len(tokens)} tokens; the caches hold {most}"
    lists = {"input_ids": tokens, "stop_token_ids": settings.stop_words, "bad_token_ids": settings.bad_words}
    for name, numbers in lists.items():
        wrong = next((int(n) for n in numbers if not 0 <= n < vocabulary), None)
        if wrong is not None and not (name == "input_ids" and data.get("input_multimodals")):
            return f"'{name}' has {wrong}; valid: 0 to {vocabulary - 1}"
    return _name_format_error(settings.response_format)


class Guard:
    """A logits processor of the caller's. What it raises is kept for its request."""

    def __init__(self, function: Any, response: Any) -> None:
        self.function, self.response, self.process = function, response, os.getpid()

    def __reduce__(self) -> Any:
        return _pass, (self.function,)  # in another process there is nobody to tell

    def __call__(self, tokens: Any, scores: Any) -> Any:
        try:
            return self.function(tokens, scores)
        except Exception as error:
            self.response.failed = f"'logits_processors' raised {type(error).__name__}: {error}"
            return scores


def _pass(function: Any) -> Any:
    return function


def check_added(old: Any) -> Any:
    """For Engine._on_add_message."""

    def on_add_message(self: Any, reqs: list[Any], **named: Any) -> None:
        from lmdeploy.messages import ResponseType
        from lmdeploy.pytorch.engine.engine import logger

        fine = []
        for request in reqs:
            settings = request.data["sampling_param"]
            message = name_error(request.data, self.model_config.vocab_size, self.max_session_len)
            if message is not None:
                logger.error("request refused: %s", message)
                self._response(request.resp, ResponseType.INTERNAL_ENGINE_ERROR, err_msg=message)
                continue
            if settings.logits_processors:
                settings.logits_processors = [Guard(each, request.resp) for each in settings.logits_processors]
            fine.append(request)
        if fine:
            old(self, fine, **named)

    return on_add_message


def send_failed(old: Any) -> Any:
    """For EngineLoop._send_resp."""

    def send_resp(self: Any, out: Any) -> None:
        message = getattr(out.resp, "failed", None)
        if message is None:
            return old(self, out)
        from lmdeploy.messages import ResponseType
        from lmdeploy.pytorch.engine.engine import logger, response_reqs

        logger.error("request ended: %s", message)
        return response_reqs(self.req_manager, out.resp, ResponseType.INTERNAL_ENGINE_ERROR, err_msg=message)

    return send_resp
