"""Names of attachments: none takes another's place, and a text that mentions them follows them."""

import pytest

from chalicelib.domain import attachments
from chalicelib.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("name", "taken", "free"),
    [
        ("report.pdf", [], "report.pdf"),
        ("report.pdf", ["report.pdf"], "report-2.pdf"),
        ("report.pdf", ["report.pdf", "report-2.pdf"], "report-3.pdf"),
        ("report-2.pdf", ["report-2.pdf"], "report-2-2.pdf"),
        ("README", ["README"], "README-2"),
        (".env", [".env"], ".env-2"),
        ("a.tar.gz", ["a.tar.gz"], "a.tar-2.gz"),
        ("Überblick.pdf", ["Überblick.pdf"], "Überblick-2.pdf"),
    ],
)
def test_a_name_that_is_taken_gets_a_number(name: str, taken: list[str], free: str) -> None:
    paths = {attachments.path_of(one) for one in taken}
    assert attachments.free(attachments.path_of(name), paths) == f"/attachments/{free}"


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../a", "/a", "a\x00b", "a\nb", "\ud83d"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        attachments.path_of(name, at="attachments.0.name")
    assert refused.value.faults[0].path == "attachments.0.name"


def test_mentions_are_found_once_without_what_stands_around_them() -> None:
    text = (
        'See /attachments/a.pdf, "/attachments/b c.pdf" and (/attachments/a.pdf). Not /attachments/ or attachments/x.'
    )
    assert attachments.mentioned(text) == ["/attachments/a.pdf", "/attachments/b"]


def test_all_mentions_are_rewritten_at_once() -> None:
    text = "/attachments/a.pdf /attachments/a-2.pdf /attachments/a.pdfx"
    moved = {"/attachments/a.pdf": "/attachments/a-2.pdf", "/attachments/a-2.pdf": "/attachments/a-3.pdf"}
    assert attachments.rewritten(text, moved) == "/attachments/a-2.pdf /attachments/a-3.pdf /attachments/a-2.pdfx"
    assert attachments.rewritten(text, {}) == text
