"""Rules `C`: what controllers send to brokers and what brokers respond, as docs/spec/controller.md has it; states and their epochs.

Most of them are windows over `states`, which is what each receiver was told of each partition in order. A window says cheaply which rows
look wrong; where more has to be known to be sure, only those rows are joined with it.
"""

from __future__ import annotations

from klamm.pipeline.rules.controller_epochs import EPOCH_RULES
from klamm.pipeline.rules.controller_metadata import METADATA_RULES, SHOWN_STATES
from klamm.pipeline.rules.controller_sends import SENDING_RULES, SENDING_VIEWS
from klamm.pipeline.rules.record import Rule, View

VIEWS: tuple[View, ...] = (*SENDING_VIEWS, SHOWN_STATES)

RULES: tuple[Rule, ...] = tuple(sorted((*EPOCH_RULES, *SENDING_RULES, *METADATA_RULES), key=lambda rule: rule.id))
