"""Words of stories that run Kafka's tools for security, as `tool_words.py` runs others; one shows users without their secrets."""

from __future__ import annotations

import re

from klamm.tests.reference.jars import VERSION
from klamm.tests.stories.both.commands import Action, Look, action, view
from klamm.tests.stories.both.stage import Stage
from klamm.tests.tools.tool_words import bootstrap, filled, quiet, run

TOOLS = {"kafka-acls": "kafka.admin.AclCommand", "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand"}

_SECRET = re.compile(r"\b(salt|stored_key|server_key)=[\w+/]+=*")


def _tool(main_class: str) -> Action:
    async def tool(stage: Stage, words: list[str]) -> str:
        arguments = ["--bootstrap-server", bootstrap(stage), *filled(stage, words)]
        return await run(stage, VERSION, main_class, *arguments, flags=[quiet(stage.folder)])

    return tool


for _name, _main_class in TOOLS.items():
    action(_name)(_tool(_main_class))


@view("users")
def users(stage: Stage, words: list[str]) -> Look:
    """users NAME ...: data of these users' nodes. Salts and keys are masked: tools draw the salt."""

    async def see() -> str:
        texts = {name: (stage.tree.get(f"/config/users/{name}") or b"none").decode() for name in words}
        return _SECRET.sub(r"\1=<bytes>", "\n".join(f"{name}: {text}" for name, text in texts.items()))

    return Look(see)
