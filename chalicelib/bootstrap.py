"""The composition root: settings -> adapters -> services, each built on first use. The only room that knows both
sides.
"""

from functools import cache, cached_property
from typing import TYPE_CHECKING

from chalicelib import settings as settings_module
from chalicelib.adapters.blobs import S3Blobs
from chalicelib.adapters.clients import Clients
from chalicelib.adapters.directory import TableDirectory
from chalicelib.adapters.file_objects import S3FileObjects
from chalicelib.adapters.queue import SqsQueue
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.system import SystemClock, SystemIds
from chalicelib.adapters.table import Table, connect
from chalicelib.domain.model import Tokens
from chalicelib.ports import Clock, Ids
from chalicelib.services.credentials import Credentials
from chalicelib.settings import Settings

if TYPE_CHECKING:  # these rooms are loaded by the functions that need them, not by all
    from chalicelib.adapters.sockets import ManagedSockets
    from chalicelib.engine.agent import Agent
    from chalicelib.engine.environment import Environment
    from chalicelib.ports import Models
    from chalicelib.services.accept import Accept
    from chalicelib.services.appending import Appender
    from chalicelib.services.call_endpoint import CallEndpoint
    from chalicelib.services.cancel import Cancel
    from chalicelib.services.cost import Cost
    from chalicelib.services.delete import Bury, Delete
    from chalicelib.services.durable import Durable
    from chalicelib.services.edit import Edit
    from chalicelib.services.family import Family
    from chalicelib.services.fan_out import FanOut
    from chalicelib.services.files import Files
    from chalicelib.services.hear import Hear
    from chalicelib.services.logs import Logs
    from chalicelib.services.outside import Outside
    from chalicelib.services.people import People
    from chalicelib.services.provision import Provision
    from chalicelib.services.read import Read
    from chalicelib.services.run_effect import RunEffect
    from chalicelib.services.subscribe import Subscribe
    from chalicelib.services.sweep import Sweep
    from chalicelib.services.take_turn import TakeTurn
    from chalicelib.services.tickets import Tickets


class House:
    """Every service of a deployment. Clock, ids and models can be given, so that a test moves the clock itself."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        models: "Models | None" = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self._models = models

    @cached_property
    def clients(self) -> Clients:
        """botocore clients of this process."""
        return Clients(region=self.settings.region, endpoint=self.settings.endpoint)

    @cached_property
    def table(self) -> Table:
        """The table as a connection."""
        return connect(
            self.settings.table,
            clock=self.clock,
            ids=self.ids,
            region=self.settings.region,
            endpoint=self.settings.endpoint,
        )

    @cached_property
    def store(self) -> TableStore:
        """Threads."""
        return TableStore(self.table)

    @cached_property
    def directory(self) -> TableDirectory:
        """Keys, tickets, connections, subscribers."""
        return TableDirectory(self.table)

    @cached_property
    def blobs(self) -> S3Blobs:
        """Objects."""
        return S3Blobs(self.clients, self.settings.bucket)

    @cached_property
    def file_objects(self) -> S3FileObjects:
        """Bytes of files."""
        return S3FileObjects(self.clients, self.settings.bucket)

    @cached_property
    def queue(self) -> SqsQueue:
        """Wake-ups."""
        return SqsQueue(self.clients, self.settings.queue_url)

    @cached_property
    def sockets(self) -> "ManagedSockets":
        """Pushes."""
        from chalicelib.adapters.sockets import ManagedSockets

        return ManagedSockets(self.clients, self.settings.socket_endpoint)

    @cached_property
    def appender(self) -> "Appender":
        """How services append to threads."""
        from chalicelib.engine.log import Log
        from chalicelib.services.appending import Appender

        return Appender(
            log=Log(store=self.store, blobs=self.blobs, queue=self.queue),
            queue=self.queue,
            clock=self.clock,
            ids=self.ids,
        )

    @cached_property
    def agents(self) -> "dict[str, Agent]":
        """The agents that this stage may run."""
        from chalicelib.agents import AGENTS

        return {name: agent for name, agent in AGENTS.items() if name != "scripted" or self.settings.is_local}

    @cached_property
    def accept(self) -> "Accept":
        """The one door for work."""
        from chalicelib.services.accept import Accept

        return Accept(store=self.store, objects=self.file_objects, appender=self.appender, agents=self.agents)

    @cached_property
    def cancel(self) -> "Cancel":
        """The end of work."""
        from chalicelib.services.cancel import Cancel

        return Cancel(store=self.store, appender=self.appender)

    @cached_property
    def delete(self) -> "Delete":
        """Deletion."""
        from chalicelib.services.delete import Delete

        return Delete(store=self.store, appender=self.appender, cost=self.cost)

    @cached_property
    def bury(self) -> "Bury":
        """What deleted threads have left."""
        from chalicelib.adapters import keys
        from chalicelib.adapters.purge import TablePurge
        from chalicelib.services.delete import Bury

        return Bury(
            store=self.store,
            purge=TablePurge(self.table, self.clients, self.settings.bucket),
            directory=self.directory,
            sockets=self.sockets,
            appender=self.appender,
            delete=self.delete,
            sizes={
                "commands": keys.COMMANDS_IN_BLOCK,
                "messages": keys.MESSAGES_IN_BLOCK,
                "events": keys.EVENTS_IN_BLOCK,
            },
            call_shards=keys.CALL_SHARDS,
            day=keys.DAY,
        )

    @cached_property
    def family(self) -> "Family":
        """Children end with their parents."""
        from chalicelib.services.family import Family

        return Family(store=self.store, appender=self.appender, cancel=self.cancel)

    @cached_property
    def edit(self) -> "Edit":
        """Later edits."""
        from chalicelib.services.hooked_edit import HookedEdit

        return HookedEdit(store=self.store, appender=self.appender, outside=self.outside, agents=self.agents)

    @cached_property
    def files(self) -> "Files":
        """Files of threads."""
        from chalicelib.services.files import Files

        return Files(store=self.store, objects=self.file_objects, appender=self.appender)

    @cached_property
    def logs(self) -> "Logs":
        """Logs of threads."""
        from chalicelib.services.logs import Logs

        return Logs(store=self.store, appender=self.appender)

    @cached_property
    def cost(self) -> "Cost":
        """Costs of threads."""
        from chalicelib.services.cost import Cost

        return Cost(store=self.store)

    @cached_property
    def durable(self) -> "Durable":
        """Durable values of threads."""
        from chalicelib.services.durable import Durable

        return Durable(store=self.store, appender=self.appender)

    @cached_property
    def people(self) -> "People":
        """Questions and approvals."""
        from chalicelib.services.people import People

        return People(store=self.store, appender=self.appender)

    @cached_property
    def environment(self) -> "Environment":
        """Settings for agents' code."""
        from chalicelib.engine.environment import Environment

        return Environment(texts=self.settings.env, secrets=self.settings.secrets)

    @cached_property
    def outside(self) -> "Outside":
        """States of threads outside of their runs."""
        from chalicelib.services.outside import Outside

        return Outside(
            agents=self.agents,
            store=self.store,
            objects=self.file_objects,
            appender=self.appender,
            cancel=self.cancel,
            environment=self.environment,
        )

    @cached_property
    def endpoints(self) -> "CallEndpoint":
        """Endpoints of agents."""
        from chalicelib.services.call_endpoint import CallEndpoint

        return CallEndpoint(outside=self.outside, agents=self.agents)

    @cached_property
    def run_effect(self) -> "RunEffect":
        """Effects of agents."""
        from chalicelib.services.run_effect import RunEffect

        return RunEffect(outside=self.outside, agents=self.agents)

    @cached_property
    def read(self) -> "Read":
        """Reads."""
        from chalicelib.services.read import Read

        return Read(store=self.store, blobs=self.blobs, clock=self.clock, agents_by_name=self.agents)

    @cached_property
    def credentials(self) -> Credentials:
        """API keys."""
        return Credentials(directory=self.directory, clock=self.clock)

    @cached_property
    def tickets(self) -> "Tickets":
        """Websocket tickets."""
        from chalicelib.services.tickets import Tickets

        return Tickets(
            directory=self.directory,
            clock=self.clock,
            ids=self.ids,
            credentials=self.credentials,
            socket_url=self.settings.socket_url,
            allowed_origins=self.settings.allowed_origins,
        )

    @cached_property
    def provision(self) -> "Provision":
        """Orgs and their first keys."""
        from chalicelib.services.provision import Provision

        return Provision(directory=self.directory, clock=self.clock, ids=self.ids, stage=self.settings.stage)

    @cached_property
    def subscribe(self) -> "Subscribe":
        """What a client asks on its socket."""
        from chalicelib.services.subscribe import Subscribe

        return Subscribe(
            store=self.store,
            directory=self.directory,
            sockets=self.sockets,
            clock=self.clock,
            credentials=self.credentials,
        )

    @cached_property
    def fan_out(self) -> "FanOut":
        """The stream's batches."""
        from chalicelib.adapters.keys import head_at, log_at, page_at
        from chalicelib.services.fan_out import FanOut

        return FanOut(
            store=self.store,
            directory=self.directory,
            sockets=self.sockets,
            clock=self.clock,
            credentials=self.credentials,
            page_of=page_at,
            log_of=log_at,
            head_of=head_at,
        )

    @cached_property
    def sweep(self) -> "Sweep":
        """What is due."""
        from chalicelib.services.sweep import Sweep

        return Sweep(store=self.store, appender=self.appender, people=self.people, family=self.family, bury=self.bury)

    @cached_property
    def take_turn(self) -> "TakeTurn":
        """Turns. Providers are loaded when a run names one."""
        from chalicelib.services.take_turn import TakeTurn

        return TakeTurn(
            store=self.store,
            objects=self.file_objects,
            appender=self.appender,
            models=self._models or self._registry(),
            agents=self.agents,
            price=_price,
            default_model=self.settings.default_model,
            version=self.settings.version,
            hear=self.hear,
            environment=self.environment,
        )

    @cached_property
    def hear(self) -> "Hear":
        """What children report."""
        from chalicelib.services.hear import Hear

        return Hear(store=self.store, objects=self.file_objects, appender=self.appender)

    def _registry(self) -> "Models":
        from chalicelib.engine.models import ModelRegistry, ProviderSettings

        providers = ProviderSettings(
            aws_region=self.settings.region,
            anthropic_api_key=self.settings.anthropic_api_key,
            openai_base_url=self.settings.openai_base_url,
            openai_api_key=self.settings.openai_api_key,
        )
        return ModelRegistry(scripted=self.settings.is_local, settings=providers)


@cache
def house() -> House:
    """The house of this process, from its environment. Raises WrongSetting."""
    from chalicelib import telemetry

    settings = settings_module.read()
    telemetry.start(settings.stage)
    return House(settings)


def _price(model: str, tokens: Tokens) -> int | None:
    from chalicelib.engine.prices import cost_micro_usd
    from chalicelib.ports import Usage

    usage = Usage(
        mode="total",
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
    )
    return cost_micro_usd(model, usage)
