"""Endpoints and effects over the running product: asked by HTTP, run by the runner once the sweep has found them."""

from collections.abc import Callable

from chalicelib.client import Turnlog
from tests.journeys.product import Product, Talk, step, text, text_of, until


def test_an_endpoint_schedules_an_effect_that_says_something_in_its_time(
    product: Product, turnlog: Turnlog, begin: Callable[..., Talk]
) -> None:
    talk = begin([step(text("I will."))])
    with product.http() as http:
        planned = http.post(f"/threads/{talk.id}/x/remind", json={"text": "Drink water."})
        assert planned.status_code == 200
        effect_id = planned.json()["effect"]
        listed = http.get(f"/threads/{talk.id}/x/remind").json()
        assert [one["id"] for one in listed] in ([effect_id], [])  # it may have run by now
        talk.event("run.completed")
        assert [text_of(m) for m in talk.messages()] == ["Drink water.", "I will."]
        assert [e["data"] for e in talk.of("custom.reminded")] == [
            {"token": effect_id.removeprefix("eff_").replace("_", ".")}
        ]
        until(lambda: http.get(f"/threads/{talk.id}/x/remind").json() == [], "the effect to be done")
        rows = http.get(f"/threads/{talk.id}/logs?kind=handler").json()["items"]
        kinds = [(row["handler"], row["model"], row["status"]) for row in rows]
        assert kinds.count(("effect", "remind", "success")) == 1
        assert ("endpoint", "POST remind", "success") in kinds


def test_an_endpoint_refuses_in_its_own_words_and_by_method(product: Product, begin: Callable[..., Talk]) -> None:
    talk = begin([])
    with product.http() as http, product.http(product.other_key) as other:
        refused = http.post(f"/threads/{talk.id}/x/remind", json=[])
        assert (refused.status_code, refused.json()["detail"]) == (422, "What of?")
        unknown = http.delete(f"/threads/{talk.id}/x/remind")
        assert (unknown.status_code, unknown.headers["allow"]) == (405, "GET, POST")
        assert http.get(f"/threads/{talk.id}/x/nothing").status_code == 404
        assert other.get(f"/threads/{talk.id}/x/remind").status_code == 404
        keyed = http.post(f"/threads/{talk.id}/x/remind", json={"text": "x"}, headers={"Idempotency-Key": "k"})
        assert keyed.status_code == 400
