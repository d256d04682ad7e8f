"""Who may come in: keys, tickets, origins, and what of them is stored."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.adapters.system import SystemIds
from chalicelib.domain.commands import Level
from chalicelib.domain.errors import InvalidRequest, Unauthorized
from chalicelib.doors import provision, socket
from chalicelib.services.credentials import CACHE_SECONDS, make_key, parse_key
from chalicelib.services.tickets import is_same_host
from tests.doors.socket_gateway import Gateway
from tests.doors.socket_house import SOCKET_URL, SocketHouse, new_id, raw

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- #\u00e9"


@pytest.fixture
def house(emulator: str) -> Iterator[SocketHouse]:
    with Gateway() as gateway:
        yield SocketHouse(emulator, gateway)


def new_key() -> str:
    ids = SystemIds()
    return make_key(ids, "test", f"org_{ids.token()}").text


def answered(house: SocketHouse, event: dict[str, Any]) -> int:
    return socket.connect(event, None, house=lambda: house)["statusCode"]


def stored(house: SocketHouse) -> str:
    """The whole table as text."""
    pages = house.table.client.get_paginator("scan").paginate(TableName=house.table.name)
    return json.dumps([page["Items"] for page in pages], default=str)


# -- keys


def test_a_key_says_its_stage_and_org_and_carries_enough_secret() -> None:
    ids = SystemIds()
    org = f"org_{ids.token()}"
    key = parse_key(make_key(ids, "live", org).text)
    assert key is not None
    assert (key.stage, key.org) == ("live", org)
    assert len(key.secret) >= 52  # 5 bits a character: 260


@given(st.data())
def test_a_key_with_a_typo_is_no_key(data: st.DataObject) -> None:
    text = new_key()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([c for c in ALPHABET if c != text[place]]))
    assert parse_key(text[:place] + other + text[place + 1 :]) is None


@given(st.text(max_size=300))
def test_any_other_text_is_no_key(text: str) -> None:
    assert parse_key(text) is None


def test_a_typo_is_told_without_a_look_at_the_table(house: SocketHouse) -> None:
    with pytest.raises(Unauthorized):
        house.credentials.verify(new_key()[:-1] + "1")
    assert house.requests == []


def test_an_unknown_key_is_refused(house: SocketHouse) -> None:
    with pytest.raises(Unauthorized):
        house.credentials.verify(new_key())


def test_a_key_stands_for_the_org_and_the_level_of_its_row(house: SocketHouse) -> None:
    key = house.key()
    principal = house.credentials.verify(key.text)
    assert (principal.org, principal.level, principal.key_sha256) == (key.org, Level.MEMBER, key.sha256)


def test_a_key_that_was_verified_a_moment_ago_costs_no_read(house: SocketHouse) -> None:
    key = house.key()
    house.credentials.verify(key.text)
    house.requests.clear()
    house.credentials.verify(key.text)
    assert house.requests == []


def test_a_revoked_key_is_refused_once_the_cache_is_old(house: SocketHouse) -> None:
    key = house.key()
    house.credentials.verify(key.text)
    house.revoke(key)
    house.clock.sleep(CACHE_SECONDS)
    with pytest.raises(Unauthorized):
        house.credentials.verify(key.text)
    assert not house.credentials.still_valid(key.sha256)


def test_a_key_made_after_it_was_refused_is_valid_at_once(house: SocketHouse) -> None:
    text = new_key()
    with pytest.raises(Unauthorized):
        house.credentials.verify(text)
    house.provision.run(key=text)
    assert house.credentials.verify(text).level is Level.ADMIN


# -- provision


def provisioned(house: SocketHouse, event: Any) -> dict[str, Any]:
    return provision.run(event, None, house=lambda: house)


def test_an_operator_makes_an_org_with_an_admin_key(house: SocketHouse) -> None:
    made = provisioned(house, {"org": "Example", "key_name": "first"})
    principal = house.credentials.verify(made["key"])
    assert (principal.org, principal.key_id, principal.level) == (made["org_id"], made["key_id"], Level.ADMIN)
    assert provisioned(house, {"org": "Example"})["org_id"] != made["org_id"]


def test_installing_a_known_key_again_changes_nothing(house: SocketHouse) -> None:
    first = provisioned(house, {"org": "Example", "key": new_key()})
    before = stored(house)
    assert provisioned(house, {"org": "Renamed", "key_name": "other", "key": first["key"]}) == first
    assert stored(house) == before


def test_installing_a_revoked_key_again_does_not_revive_it(house: SocketHouse) -> None:
    key = house.key()
    house.revoke(key)
    provisioned(house, {"org": "Example", "key": key.text})
    with pytest.raises(Unauthorized):
        house.credentials.verify(key.text)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        ({}, "org"),
        ({"org": " "}, "org"),
        ({"org": 5}, "org"),
        ({"org": "x", "key_name": "n" * 201}, "key_name"),
        ({"org": "x", "key": 5}, "key"),
        ({"org": "x", "key": "tl_test_short"}, "key"),
        ({"org": "x", "key": make_key(SystemIds(), "other", "org_" + "a" * 20).text}, "key"),
    ],
)
def test_a_wrong_order_to_provision_stores_nothing(house: SocketHouse, event: Any, path: str) -> None:
    before = stored(house)
    with pytest.raises(InvalidRequest) as refused:
        provisioned(house, event)
    assert refused.value.faults[0].path == path
    assert stored(house) == before


# -- tickets


def test_a_ticket_names_where_to_connect_and_ends_after_a_minute(house: SocketHouse) -> None:
    before = house.clock.now()
    made = house.tickets.issue(house.credentials.verify(house.key().text))
    assert made["url"] == f"{SOCKET_URL}?ticket={made['ticket']}"
    assert before < made["expires_at"] <= house.clock.now() + 60_000_000
    assert len(made["ticket"]) >= 26  # 5 bits a character: 130


def test_a_ticket_opens_one_connection(house: SocketHouse) -> None:
    ticket = house.ticket(house.key())
    first, second = new_id(), new_id()
    assert [house.open(ticket, first), house.open(ticket, second)] == [200, 401]
    assert house.directory.connection(first) is not None
    assert house.directory.connection(second) is None


def test_of_many_connections_with_one_ticket_at_once_one_opens(house: SocketHouse) -> None:
    ticket = house.ticket(house.key())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: house.open(ticket, new_id()), range(8)))
    assert sorted(answers) == [200] + [401] * 7


def test_a_connection_belongs_to_the_org_and_the_key_of_its_ticket(house: SocketHouse) -> None:
    key = house.key()
    reader = house.connect(key)
    connection = house.directory.connection(reader.connection)
    assert connection is not None
    assert (connection.org, connection.key_sha256) == (key.org, key.sha256)


def test_nothing_is_posted_to_a_connection_inside_its_connect(house: SocketHouse) -> None:
    house.connect(house.key())
    assert dict(house.gateway.posts) == {}


def test_a_ticket_ends_after_a_minute(house: SocketHouse) -> None:
    ticket = house.ticket(house.key())
    house.clock.sleep(60)
    connection = new_id()
    assert house.open(ticket, connection) == 401
    assert house.directory.connection(connection) is None


def test_a_ticket_of_a_revoked_key_opens_nothing(house: SocketHouse) -> None:
    key = house.key()
    ticket = house.ticket(key)
    house.revoke(key)
    house.clock.sleep(CACHE_SECONDS)
    assert house.open(ticket, new_id()) == 401


@pytest.mark.parametrize("ticket", ["", "made-up", "x" * 100_000, "\u00e9"])
def test_a_text_that_is_no_ticket_opens_nothing(house: SocketHouse, ticket: str) -> None:
    assert house.open(ticket, new_id()) == 401


def test_a_connect_without_a_ticket_is_refused(house: SocketHouse) -> None:
    assert answered(house, raw("websocket.connect-without-ticket")) == 401


def test_neither_key_nor_ticket_is_stored(house: SocketHouse) -> None:
    made = provisioned(house, {"org": "Example"})
    ticket = house.tickets.issue(house.credentials.verify(made["key"]))["ticket"]
    table = stored(house)
    assert made["key"] not in table
    assert made["key"].split("_")[3] not in table
    assert ticket not in table


# -- origins


def from_a_page(house: SocketHouse, origin: str) -> dict[str, Any]:
    event = raw("websocket.connect-from-a-page")
    event["queryStringParameters"] = {"ticket": house.ticket(house.key())}
    event["multiValueHeaders"]["origin"] = [origin]
    return event


def test_a_page_of_another_host_may_not_connect_and_burns_no_ticket(house: SocketHouse) -> None:
    event = from_a_page(house, "https://app.example")
    assert answered(house, event) == 403
    del event["multiValueHeaders"]["origin"]
    assert answered(house, event) == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://localhost:5173", "http://[::1]:3000"])
def test_on_loopback_a_page_of_any_local_port_may_connect(house: SocketHouse, origin: str) -> None:
    assert answered(house, from_a_page(house, origin)) == 200


@pytest.mark.parametrize("origin", ["null", "", "http://", "http://127.0.0.1.evil.example", "http://[", "file://"])
def test_an_odd_origin_may_not_connect(house: SocketHouse, origin: str) -> None:
    assert answered(house, from_a_page(house, origin)) == 403


def test_with_a_list_of_origins_only_these_may_connect(emulator: str) -> None:
    with Gateway() as gateway:
        house = SocketHouse(emulator, gateway, allowed_origins=("https://app.example",))
        answers = [
            answered(house, from_a_page(house, origin))
            for origin in ("https://app.example", "https://APP.example/", "http://app.example", "http://127.0.0.1:8000")
        ]
    assert answers == [200, 200, 403, 403]


def test_two_origin_headers_must_both_be_allowed(house: SocketHouse) -> None:
    event = from_a_page(house, "http://127.0.0.1:8000")
    event["multiValueHeaders"]["origin"].append("https://app.example")
    assert answered(house, event) == 403


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("https://api.example", "api.example", True),
        ("https://api.example", "api.example:443", True),
        ("https://API.example", "api.example", True),
        ("http://api.example", "api.example:8000", False),
        ("https://api.example:8443", "api.example", False),
        ("https://api.example.evil.test", "api.example", False),
        ("https://api.example@evil.test", "api.example", False),
        ("http://localhost:3000", "api.example", False),
        ("null", "null", False),
        ("https://api.example", "", False),
    ],
)
def test_the_same_host_is_host_and_port(origin: str, host: str, same: bool) -> None:
    assert is_same_host(origin, host) is same
