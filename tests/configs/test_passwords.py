"""Stored passwords: what a Kafka 3.9.1 wrote is read; stories/both/configs_passwords.txt tells the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klamm.configs.broker_config import BrokerConfig, ConfigError
from klamm.configs.dynamic import check_entry
from klamm.configs.passwords import CannotDecrypt, PasswordEncoder
from klamm.tests.configs.conftest import BROKER, SET

SECRET = "password.encoder.secret"
CIPHER, FACTORY = "password.encoder.cipher.algorithm", "password.encoder.keyfactory.algorithm"
KEY_LENGTH, ITERATIONS = "password.encoder.key.length", "password.encoder.iterations"
NAME = "listener.name.plaintext.ssl.key.password"
OF_KAFKA = (
    "initializationVector:EAEQhWWpwlEzRXONqrbE6A==,keyLength:128,salt:UYkZHxOXc5MILbCNpLnZRHho9+ahwycfkJVe5BcHRWJnrIRqyCsgtiyi2Bo9iezBZATtwqCU"
    "DGYQa+im7n705rNEuL0bC+TxJMT79QtSXKiMA2vV3sWKVHJ8lM4U2SDtbytlZn3vxHMO4i5gGLj9LWSoHQ/mQw7LlAEKMyrRyDZwuRSFgxoWmlFkRsntBe5+ZES14Q080NhvPMeA"
    "AZSSAp1q28aY9sUM2XS9dprZ82L1MlcJbe7YJPvA4B7CnsWdrjMg+KzaxYn4OW9p+VhenBia3lN0EeR79g2Kum8pS+2SnSVLGxazEowcCP8R+VoKN6Y81bTZAG00Ireojh5ODA==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:7,"
    "encryptedPassword:uixq4C6R4z3uno5sJXHbmQ=="
)


def encoder(secret: str = "top-secret", **properties: str) -> PasswordEncoder:
    config = BrokerConfig({"zookeeper.connect": "unused", SECRET: secret, **properties})
    assert config.passwords is not None
    return config.passwords


def test_what_kafka_encrypted_is_decrypted():
    assert encoder().decode(OF_KAFKA) == "hunter2"


@pytest.mark.parametrize(
    ("name", "per_broker"), [("ssl.keystore.password", True), ("ssl.key.password", False), (NAME, False)]
)
def test_the_refusal_of_a_password_does_not_show_it(name, per_broker):
    with pytest.raises(ConfigError) as refused:
        check_entry(name, "hunter2", per_broker, {})
    assert "hunter2" not in str(refused.value) and name in str(refused.value)
    assert "hunter2" not in repr(refused.value)


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/CTR/NoPadding", "AES/GCM/NoPadding"])
@pytest.mark.parametrize("password", ["", "x", "a" * 16, "pässwörd-😀"])
def test_what_is_encrypted_is_decrypted_under_the_same_secret_only(cipher, password):
    stored = encoder(**{CIPHER: cipher, KEY_LENGTH: "256", ITERATIONS: "1024", FACTORY: "PBKDF2WithHmacSHA256"}).encode(password)
    assert encoder(**{CIPHER: cipher}).decode(stored) == password
    if password and "CTR" not in cipher:  # which has nothing to tell a wrong key by
        with pytest.raises(CannotDecrypt):
            encoder("other", **{CIPHER: cipher}).decode(stored)


def test_two_texts_of_one_password_have_nothing_in_common():
    first, second = (dict(part.split(":", 1) for part in encoder().encode("hunter2").split(",")) for _ in range(2))
    assert {name for name in first if first[name] == second[name]} == {
        "keyLength",
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "iterations",
        "passwordLength",
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "plain",
        lambda text: text.replace("passwordLength:7", "passwordLength:8"),
        lambda text: text.replace("iterations:4096", "iterations:x"),
        lambda text: text.replace("salt:U", "salt:V"),
        lambda text: text.replace("CBC", "XTS"),
        lambda text: text.replace("SHA512", "MD5"),
        lambda text: text.replace("encryptedPassword:ui", "encryptedPassword:"),
        lambda text: text.replace("keyLength:128", "keyLength:127"),
        lambda text: text.replace("initializationVector:EAEQ", "initializationVector:"),
        lambda text: text.replace(",iterations:4096", ""),
    ],
)
def test_a_damaged_text_is_an_error_of_its_own(damage):
    with pytest.raises(CannotDecrypt):
        encoder().decode(damage(OF_KAFKA))


@pytest.mark.parametrize(
    ("name", "text"),
    [(CIPHER, "DES/CBC/PKCS5Padding"), (CIPHER, "AES"), (FACTORY, "PBEWithMD5AndDES"), (KEY_LENGTH, "64")],
)
def test_an_algorithm_that_is_not_known_is_refused_at_the_start(name, text):
    with pytest.raises(ConfigError, match=name):
        encoder(**{name: text})


def test_nothing_is_imported_for_it_before_a_password_is_met():
    code = "import sys, klamm.server.local.cluster; print('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


async def test_a_password_is_stored_encrypted_and_taken_by_its_broker(brokers):
    node = await brokers(0, **{SECRET: "top-secret"})
    assert await node.increment((BROKER, "0", [(NAME, SET, "hunter2")])) == [0]
    stored = (await node.stored("brokers/0"))[NAME]
    assert "hunter2" not in stored
    assert node.config.passwords.decode(stored) == "hunter2"
    await node.eventually(lambda: node.config.dynamic_own == {NAME: "hunter2"})
    assert await node.values(BROKER, "0", NAME) == {NAME: None}
