"""APIs of transactions, and the inter-broker protocol that they need."""

from __future__ import annotations

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis.handlers import TRANSACTIONS, handlers_of, offered_by
from klamm.tests.services import make_context, make_services


def config_of(protocol: str) -> BrokerConfig:
    return BrokerConfig({
        "broker.id": "0", "zookeeper.connect": "localhost:1", "listeners": "PLAINTEXT://localhost:0",
        "inter.broker.protocol.version": protocol, "log.message.format.version": protocol,
    })


def test_transactions_are_hidden_below_protocol_0_11_and_offered_from_it_on() -> None:
    older, newer = ({api.key for api in offered_by(config_of(protocol))} for protocol in ("0.10.2", "0.11.0"))
    assert newer - older == TRANSACTIONS
    assert {ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS} <= older


def test_below_protocol_0_11_a_request_of_a_transaction_gets_unsupported_version() -> None:
    handler = handlers_of(config_of("0.10.2"))[ApiKey.END_TXN]
    request = messages.EndTxnRequest(transactional_id="a", producer_id=1, producer_epoch=0, committed=True)
    response = handler.handle(make_context(make_services(), ApiKey.END_TXN, 3), request)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
