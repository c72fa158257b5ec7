"""Ask a model one question for memory: streamed, timed, with retries of transient failures."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from sakti.core.clock import Clock
from sakti.core.config import MAX_OUTPUT_TOKENS, ModelSettings
from sakti.core.errors import MemoryFailure, ProviderError
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import Block, ImagePart, Message, ModelCall, Part, Request, TextPart
from sakti.providers import limits
from sakti.providers.facts import takes_images
from sakti.providers.limits import Retries
from sakti.providers.omissions import choose_settings
from sakti.providers.protocol import Completed, PromptProgress, Provider, StreamEvent, TextChunk

log = logging.getLogger(__name__)


async def _read_answer(stream: AsyncIterator[StreamEvent]) -> tuple[Completed | None, str]:
    """Return the stop event of an answer (None: it broke off) and its streamed text."""
    chunks: list[str] = []
    written = 0
    done: Completed | None = None
    async for event in stream:
        if not isinstance(event, Completed | PromptProgress):
            written += len(event.text)
            limits.check_answer_length(written)
        if isinstance(event, TextChunk):
            chunks.append(event.text)
        elif isinstance(event, Completed):
            done = event
    return done, "".join(chunks)


class MemoryModel:
    """Model for memory's questions; `full_name` is provider/name.

    `max_output`: largest answer in tokens if the model or its window is known to allow less than the settings;
    otherwise no limit is sent, because APIs refuse limits above the model's maximum. `left_out` names the settings
    that the model rejects.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        counter: Counter,
        clock: Clock,
        *,
        settings: ModelSettings,
        max_output: int | None = None,
    ) -> None:
        self.provider, self.model, self.counter, self.clock = provider, model, counter, clock
        self.max_output_tokens = min(settings.max_output_tokens, max_output or settings.max_output_tokens)
        self._takes = choose_settings(provider.name, model, settings.temperature, settings.thinking_tokens)
        self._random = random.Random()
        self._extra = dict(settings.extra)
        self._images = takes_images(provider.name, model)
        self.left_out = self._takes.left_out
        if self.left_out:
            log.info("calling %s without %s", self.full_name, " and ".join(self.left_out))

    @property
    def full_name(self) -> str:
        return f"{self.provider.name}/{self.model}"

    async def ask(self, system: str, prompt: str, images: Sequence[ImagePart] = ()) -> tuple[str, ModelCall]:
        """Return the model's complete answer and its usage.

        `images` go with the prompt, each under its number; a model that refuses them gets none from then on. Raises
        `ProviderError` if the model stays unavailable, or for a failure that a retry cannot fix.
        """
        if images and self._images:
            try:
                return await self._ask(system, prompt, images)
            except ProviderError as e:
                if e.code != "invalid_request":
                    raise
                self._images = False
                log.info("calling %s without images: %s", self.full_name, e.message)
        return await self._ask(system, prompt, ())

    async def _ask(self, system: str, prompt: str, images: Sequence[ImagePart]) -> tuple[str, ModelCall]:
        shown = (part for n, image in enumerate(images, 1) for part in (TextPart(f"Image #{n}:"), image))
        parts: tuple[Part, ...] = (TextPart(prompt), *shown)
        counted_parts = count_parts(self.counter, parts)
        message = Message(
            "observer-input",
            "",
            "",
            "user",
            parts,
            self.clock.now(),
            tokens=sum_message_tokens(counted_parts),
            part_tokens=counted_parts,
        )
        counted = self.counter.count(system) + message.tokens
        request = Request(
            self.model,
            (Block("system", system, edge=True),),
            (message,),
            max_output_tokens=self.max_output_tokens if self.max_output_tokens < MAX_OUTPUT_TOKENS else None,
            temperature=self._takes.temperature,
            thinking_tokens=self._takes.thinking_tokens,
            extra=self._extra,
        )
        retries = Retries(self._random.random)
        while True:
            try:
                return await self._ask_once(request, counted)
            except ProviderError as e:
                seconds = retries.wait(e)
                if seconds is None:
                    raise
                log.info("retrying %s in %.0f s: %s", self.full_name, seconds, e.message)
                await self.clock.sleep(seconds)

    async def _ask_once(self, request: Request, counted: int) -> tuple[str, ModelCall]:
        started = self.clock.monotonic()
        stream = self.provider.stream(request)
        try:
            done, streamed = await _read_answer(stream)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if done is None:
            raise ProviderError("The answer broke off before its end.", code="stream_cut", retryable=True)
        text = "".join(p.text for p in done.parts if isinstance(p, TextPart)) or streamed
        if done.stop_reason == "refusal" and not text:
            raise MemoryFailure(f"{self.full_name} refused.", code="refused")
        duration = round((self.clock.monotonic() - started) * 1000)
        return text, ModelCall(self.full_name, done.usage, duration, done.stop_reason, counted)


def prompt_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
