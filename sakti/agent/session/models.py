"""Choose the models of a session: the actor that answers, and those that work in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sakti.core.config import Config
from sakti.core.errors import SaktiError
from sakti.core.events import Event, ModelChanged, Notice
from sakti.core.types import ModelInfo

if TYPE_CHECKING:
    from sakti.providers.protocol import Provider

from sakti.providers import facts, registry

EXTRACTIVE = "extractive"
WITHOUT_PRICES = ("local", "scripted")


class Models:
    """Models of a session; `provider` and `info` are the actor's, None without one.

    `selection` was shown to the user.
    """

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        emit: Callable[[Event], None],
    ) -> None:
        self.provider: Provider | None = None
        self.info: ModelInfo | None = None
        self.selection: ModelChanged | None = None
        self._config, self._env, self._emit = config, env, emit
        self.noticed_window: int | None = None  # models whose notice about a small window was shown
        self.noticed_prices: set[str] = set()  # models of children whose missing price was shown
        self._background: dict[str, Provider] = {}
        self._learned = False
        self._learning = asyncio.Lock()

    async def select(self, flag: str | None) -> None:
        """Choose the actor and announce it with the reason; having none is announced too, not an error."""
        if self.provider is not None:
            self._say("given")
            return
        try:
            choice = await registry.select_model(
                flag=flag, config_model=self._config.model, env=self._env, settings=self._config.providers
            )
        except SaktiError as e:
            self._emit(Notice("error", e.title, e.message))
            choice = None
        if choice is None:
            self.selection = ModelChanged(None, "no key, no local server, no installed model")
            self._emit(self.selection)
        else:
            await self._use(choice.model, choice.reason)

    async def change(self, name: str) -> None:
        """Use another actor from now on. Raises `NoModelError` for a name that means nothing."""
        await self._use(await registry.complete_name(name, self._env, self._config.providers), "/model")

    async def _use(self, full_name: str, reason: str) -> None:
        provider = registry.create_provider(full_name, self._config.providers, self._env)
        name, _, model = full_name.partition("/")
        settings = self._config.providers.get(name)
        models = {m.name: m for m in await provider.models()} if name in WITHOUT_PRICES else {}
        info = models.get(model) or ModelInfo(model, name, context_window=settings.context_window if settings else None)
        if name not in WITHOUT_PRICES:
            info = replace(info, images=facts.takes_images(name, model, settings))
        old, self.provider, self.info, self._learned = self.provider, provider, info, False
        if old is not None:
            await old.close()
        self._say(reason)

    def _say(self, reason: str) -> None:
        assert self.info is not None
        self.selection = ModelChanged(self.info.full_name, reason, self.info.context_window)
        self._emit(self.selection)

    async def warm(self) -> None:
        """Load the SDKs of all models in use: actor, Observer, Reflector, fallback."""
        with contextlib.suppress(SaktiError):  # a wrong name is reported when the fallback is needed
            if name := self._config.fallback_model:
                self.background(registry.resolve_name(name, self._config.providers))
        for provider in (self.provider, *self._background.values()):
            if provider is not None:
                await provider.warm()

    async def learn(self) -> ModelInfo:
        """Complete the facts of the actor's model, once, before its first request.

        The price list is slow to load, and a server that is not the provider's own is asked how much of the model it
        serves. If the window is unknown, a small one is assumed, with a notice.
        """
        assert self.info is not None
        async with self._learning:
            if not self._learned and self.info.provider not in WITHOUT_PRICES:
                await self._learn(self.info)
        return self.info

    async def _learn(self, info: ModelInfo) -> None:
        assert self.provider is not None
        settings = self._config.providers.get(info.provider)
        learned = await asyncio.to_thread(facts.get_model_info, info.provider, info.name, settings)
        configured = settings is not None and settings.context_window is not None
        self._learned = True
        if not configured and (
            self.provider.is_custom_server or learned.context_window is None or learned.max_output is None
        ):
            served = await self.provider.fetch_limits(info.name)
            self._learned = served is not None  # else it is asked again before the next turn
            if served is not None:
                learned = await asyncio.to_thread(facts.get_model_info, info.provider, info.name, settings, served)
        if learned.context_window is None:
            window = facts.ASSUMED_ON_LOOPBACK if self.provider.loopback else facts.ASSUMED_WINDOW
            learned = replace(learned, context_window=window, assumed=True)
            if self._learned:
                self._emit(Notice("warning", "Window not known", facts.explain_assumed_window(learned)))
        changed = learned.context_window != info.context_window
        self.info = replace(learned, small=info.small)
        if changed:
            self._say(self.selection.reason if self.selection else "")

    async def fallback(self) -> tuple[Provider, ModelInfo] | None:
        """Return the model that answers when the actor stays overloaded, with its provider.

        None if none is named, or it is the actor.
        """
        name = self._config.fallback_model
        return await self._other(name) if name else None

    async def for_turn(self, name: str) -> tuple[Provider, ModelInfo] | None:
        """Return the model and provider that a skill or hook names for one turn; None for the actor.

        A notice names one that is not available, and the actor answers.
        """
        assert self.info is not None
        try:
            return await self.find_named(name)
        except SaktiError as e:
            text = f"{name} was requested ({e.message.rstrip('.')}); {self.info.full_name} answers."
            self._emit(Notice("warning", "Model", text))
            return None

    async def find_named(self, name: str) -> tuple[Provider, ModelInfo] | None:
        """Return a model by its name or by an alias of claude-code, with its provider; None for the actor.

        "haiku" means the provider's small model. Raises `SaktiError` if it is not available.
        """
        assert self.info is not None
        short = {"haiku": registry.choose_small_model(self.info.full_name), "sonnet": "", "opus": "", "inherit": ""}
        requested = short.get(name.lower(), name)
        if not requested:
            return None
        full_name = await registry.complete_name(requested, self._env, self._config.providers)
        if problem := await asyncio.to_thread(registry.explain_missing, full_name, self._config.providers, self._env):
            raise SaktiError(problem)
        return await self._other(full_name)

    async def _other(self, name: str) -> tuple[Provider, ModelInfo] | None:
        """Return a model with its provider; None for the actor. Raises `NoModelError`, `ConfigError`."""
        if self.info is None:
            return None
        full_name = await registry.complete_name(name, self._env, self._config.providers)
        if full_name == self.info.full_name:
            return None
        provider, model = self.background(full_name)
        if provider is None or model is None:
            return None
        owner = full_name.partition("/")[0]
        if owner in WITHOUT_PRICES:
            return provider, next((m for m in await provider.models() if m.name == model), ModelInfo(model, owner))
        settings = self._config.providers.get(owner)
        served = await provider.fetch_limits(model) if provider.is_custom_server else None
        return provider, await asyncio.to_thread(facts.get_model_info, owner, model, settings, served)

    def update_info(self, info: ModelInfo) -> None:
        """Apply the actor's limits revealed by an answer: a smaller window or output limit."""
        if self.info is not None and self.info.full_name == info.full_name:
            self.info = info

    def choose_observer(self) -> str | None:
        """Return the model that observes if no setting names one.

        This is the provider's small model, or the actor's if the provider's name stands for a custom server.
        """
        if self.info is None or self.provider is None:
            return None
        return (
            self.info.full_name if self.provider.is_custom_server else registry.choose_small_model(self.info.full_name)
        )

    def can_observe(self, full_name: str | None) -> bool:
        """Return whether a model chosen automatically may observe: one known to be unfit may not."""
        if full_name is None or (self.info is not None and self.info.small):
            return full_name is None
        provider, _, model = full_name.partition("/")
        return facts.find_family(provider, model).observes is not False

    def background(self, full_name: str | None) -> tuple[Provider | None, str | None]:
        """Provider and name of a model that works in the background.

        The actor's provider if it is the same, so that one connection serves both.
        """
        if full_name is None or full_name == EXTRACTIVE:
            return None, None
        name, _, model = full_name.partition("/")
        if self.provider is not None and self.info is not None and self.info.provider == name:
            return self.provider, model
        if full_name not in self._background:
            self._background[full_name] = registry.create_provider(full_name, self._config.providers, self._env)
        return self._background[full_name], model

    async def close(self) -> None:
        for provider in (self.provider, *self._background.values()):
            if provider is not None:
                await provider.close()
