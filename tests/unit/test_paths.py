"""Paths: what is refused, what one form the rest has, and that the order of places is the walk of the tree."""

import json
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chalicelib.domain import paths
from chalicelib.domain.errors import InvalidRequest

#: The table of P20, made absolute: every text that must be refused, and every text that is a plain name inside.
BAD = [
    "", "/", "a.txt", "../t-10/secret.txt", "a/../../t-10/secret.txt", "..", "./../t-10/x", "file:///etc/passwd",
    "C:\\x", "/..", "/../t-10/secret.txt", "/a/../../t-10/secret.txt", "/a/..", "/./../t-10/x", "/a/./../../t-10/x",
    "/a/./b", "/.", "//etc/passwd", "/a//b", "/a/", "/a\x00b.txt", "/a\nb", "/\x7f", "/\x85", "/\ud83d",
    "/" + "x" * 1_024, "/" + "é" * 512,
]  # fmt: skip
PLAIN = [
    "/a.txt", "/a/b/c.txt", "/..a.txt", "/a..b/c.txt", "/sp ace.txt", "/café.txt", "/plus+and&.txt", "/100%.txt",
    "/...", "/%2e%2e/t-10/secret.txt", "/..%2ft-10%2fsecret.txt", "/..\\t-10\\secret.txt", "/etc/passwd", "/C:\\x",
    "/․․/x", "/" + "x" * 1_023, "/" + "é" * 511 + "x", "/#", "/\U0010ffff",
]  # fmt: skip

segments = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=6)
#: Texts that are nearly paths: pieces that mean something to somebody, in any order.
odd = st.lists(
    st.one_of(segments, st.sampled_from(["/", "/", "..", ".", "%2e", "\\", "e\u0301", "\x00", "\ud83d", " "])),
    max_size=9,
).map(lambda pieces: "/" + "".join(pieces))
names = segments.filter(lambda segment: segment not in (".", ".."))  # which no path has
files = st.lists(names, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))


def taken(text: str) -> str | None:
    """The path that a text becomes, None if it is refused."""
    try:
        return paths.file_path(text)
    except InvalidRequest:
        return None


@pytest.mark.parametrize("text", BAD)
def test_what_could_mean_something_else_is_refused(text: str) -> None:
    assert taken(text) is None


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_name_stays_exactly_what_it_is(text: str) -> None:
    assert taken(text) == text


@pytest.mark.parametrize("text", ["/", "/a", "/a/", "/a/b"])
def test_a_folder_may_be_named_with_or_without_its_slash(text: str) -> None:
    assert paths.folder_path(text) == (text.rstrip("/") or "/")


@pytest.mark.parametrize("text", ["", "a", "//", "/a//", "/..", "/a/../", "/./"])
def test_a_folder_is_refused_like_a_file(text: str) -> None:
    with pytest.raises(InvalidRequest):
        paths.folder_path(text)


def test_the_fault_says_where_and_what() -> None:
    with pytest.raises(InvalidRequest) as refused:
        paths.file_path("/a/../b", at="content.0.path")
    assert refused.value.faults[0].path == "content.0.path"
    assert refused.value.detail == "content.0.path: must not contain `..`"


def test_two_spellings_of_one_character_are_one_path() -> None:
    assert paths.file_path("/cafe\u0301") == paths.file_path("/café") == "/café"


def test_bytes_are_counted_in_the_form_that_is_stored() -> None:
    assert taken("/" + "e\u0301" * 511) == "/" + "é" * 511
    assert taken("/" + "\u0958" * 200) is None  # NFC takes this letter apart, into twice its bytes


@given(odd)
def test_whatever_comes_is_refused_or_stays_inside(text: str) -> None:
    path = taken(text)
    assume(path is not None)
    assert path is not None
    assert path.startswith("/")
    assert not {"", ".", ".."} & set(path[1:].split("/"))
    assert len(path.encode()) <= paths.PATH_BYTES
    assert unicodedata.is_normalized("NFC", path)
    assert json.loads(json.dumps(path)) == path


@given(files)
def test_the_one_form_is_its_own_form(text: str) -> None:
    path = taken(text)
    assume(path is not None)
    assert path is not None
    assert taken(path) == path


@given(st.lists(files, max_size=12), st.one_of(files, st.just("/")))
def test_a_range_holds_what_is_inside_a_folder_and_nothing_else(texts: list[str], folder: str) -> None:
    low, high = paths.range_of(folder)
    for path in texts:
        parents = {str(parent) for parent in PurePosixPath(path).parents}
        within = folder in parents
        assert (low <= paths.place(path) <= high) == within
        assert paths.is_inside(path, folder) == within


@given(st.lists(files, unique=True, max_size=12))
def test_places_are_in_the_order_of_a_walk(texts: list[str]) -> None:
    assert sorted(texts, key=paths.place) == sorted(texts, key=lambda path: path.split("/"))
    assert len({paths.place(path) for path in texts}) == len(texts)


@given(files, files)
def test_nothing_stands_between_a_path_and_what_is_inside_it(path: str, other: str) -> None:
    """What a new file has on its way is found by looking at the place before it."""
    inside = f"{path}/{other[1:]}"
    assert paths.place(path) < paths.after(path) <= paths.place(paths.marker(path)) < paths.place(inside)
    assert paths.place(inside) < paths.behind(path)
    assert not paths.place(path) < paths.place(other) < paths.place(inside) or paths.is_inside(other, path)


@given(files, segments)
def test_the_entry_of_a_folder_is_the_next_segment(folder: str, name: str) -> None:
    assert paths.child(f"{folder}/{name}/deep/er", folder) == f"{folder}/{name}"
    assert paths.child(f"{folder}/{name}", "/") == "/" + folder.split("/")[1]
    assert paths.name(f"{folder}/{name}") == name


def test_folders_are_compared_by_whole_segments() -> None:
    assert not paths.is_inside("/t-10/secret.txt", "/t-1")
    assert paths.is_inside("/t-1/x", "/t-1")
    assert not paths.is_inside("/t-1", "/t-1")


def test_the_longest_path_is_a_sort_key_that_dynamodb_takes() -> None:
    longest = "/" + "x" * (paths.PATH_BYTES - 1)
    made = paths.marker(paths.folder_path("/" + "x" * (paths.PATH_BYTES - 2)))
    keys = [paths.place(longest), paths.after(longest), paths.behind(longest), paths.after(made), *paths.range_of("/")]
    assert max(len(key.encode()) for key in keys) <= 1_024
