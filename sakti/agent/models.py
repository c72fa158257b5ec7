"""The models of a session: the actor that answers, and those that work in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sakti.core.config import Config
from sakti.core.errors import SaktiError
from sakti.core.events import Event, ModelChanged, Notice
from sakti.core.types import ModelInfo

if TYPE_CHECKING:
    from sakti.providers.protocol import Provider

EXTRACTIVE = "extractive"
WITHOUT_PRICES = ("local", "scripted")


class Models:
    """`provider` and `info` are the actor's, None where nobody can answer; `said` is what the user was told."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        emit: Callable[[Event], None],
        provider: Provider | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self.provider = provider
        self.info = info
        self.said: ModelChanged | None = None
        self._config, self._env, self._emit = config, env, emit
        self._background: dict[str, Provider] = {}
        self._learned = False

    async def select(self, flag: str | None) -> None:
        """Choose the actor and say which and why; nobody to answer is said too, and is no error."""
        if self.provider is not None:
            self._say("given")
            return
        from sakti.providers import registry

        try:
            choice = await registry.select(
                flag=flag, config_model=self._config.model, env=self._env, settings=self._config.providers
            )
        except SaktiError as e:
            self._emit(Notice("error", e.title, e.message))
            choice = None
        if choice is None:
            self.said = ModelChanged(None, "no key, no local server, no installed model")
            self._emit(self.said)
        else:
            await self._use(choice.model, choice.reason)

    async def change(self, name: str) -> None:
        """Use another actor from now on. Raises `NoModelError` for a name that means nothing."""
        from sakti.providers import registry

        await self._use(await registry.complete(name, self._env, self._config.providers), "/model")

    async def _use(self, full_name: str, reason: str) -> None:
        from sakti.providers import registry

        provider = registry.create(full_name, self._config.providers, self._env)
        name, _, model = full_name.partition("/")
        settings = self._config.providers.get(name)
        known = {m.name: m for m in await provider.models()} if name in WITHOUT_PRICES else {}
        info = known.get(model) or ModelInfo(model, name, context_window=settings.context_window if settings else None)
        info = replace(info, images=self._takes_images(name))
        old, self.provider, self.info, self._learned = self.provider, provider, info, False
        if old is not None:
            await old.close()
        self._say(reason)

    def _takes_images(self, provider: str) -> bool:
        from sakti.providers import accepts

        settings = self._config.providers.get(provider)
        told = settings.images if settings else None
        return accepts.images(provider) if told is None else told

    def _say(self, reason: str) -> None:
        assert self.info is not None
        self.said = ModelChanged(self.info.full_name, reason, self.info.context_window)
        self._emit(self.said)

    async def learn(self) -> ModelInfo:
        """The actor with its window, looked up once, before its first request: the price list is slow to load."""
        assert self.info is not None
        if not self._learned and self.info.context_window is None and self.info.provider not in WITHOUT_PRICES:
            from sakti.providers import registry

            self._learned = True
            found = await asyncio.to_thread(registry.model_info, self.info.full_name, self._config.providers)
            if found.context_window is not None:
                self.info = replace(found, small=self.info.small, images=self.info.images)
                self._say(self.said.reason if self.said else "")
        return self.info

    def observing(self) -> str | None:
        """The model that observes where no setting names one: the provider's small one, or the actor's own where
        another server stands behind the provider's name."""
        from sakti.providers import registry

        if self.info is None:
            return None
        settings = self._config.providers.get(self.info.provider)
        elsewhere = (settings and settings.base_url) or self._env.get(f"{self.info.provider.upper()}_BASE_URL")
        return self.info.full_name if elsewhere else registry.small_model(self.info.full_name)

    def background(self, full_name: str | None) -> tuple[Provider | None, str | None]:
        """Provider and name of a model that works in the background; the actor's provider where it is the same, so
        that one connection serves both."""
        from sakti.providers import registry

        if full_name is None or full_name == EXTRACTIVE:
            return None, None
        name, _, model = full_name.partition("/")
        if self.provider is not None and self.info is not None and self.info.provider == name:
            return self.provider, model
        if full_name not in self._background:
            self._background[full_name] = registry.create(full_name, self._config.providers, self._env)
        return self._background[full_name], model

    async def close(self) -> None:
        for provider in (self.provider, *self._background.values()):
            if provider is not None:
                await provider.close()
