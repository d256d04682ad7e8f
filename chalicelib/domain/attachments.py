"""Names of attachments: files in one folder of a thread, that never take each other's place.

Pure. It guarantees that a name is one safe segment, that a new one differs from all that are there (`report.pdf`,
`report-2.pdf`), and that a text which mentions attachments can be made to mention others.
"""

import re
from collections.abc import Collection, Mapping

from chalicelib.domain import paths
from chalicelib.domain.errors import InvalidRequest

FOLDER = "/attachments"
#: Attachments that one text brings along, as many as a message may have (spec section 13).
MENTIONED = 20
_MENTION = re.compile(re.escape(FOLDER) + r"/[^\s\"'`<>|*?\\\x00-\x1f\x7f(){}\[\]]+")
_TRAILING = ".,;:!"


def path_of(name: str, *, at: str = "name") -> str:
    """The path of an attachment of that name. Raises InvalidRequest for a name that is none."""
    if "/" in name:
        raise InvalidRequest.at(at, "must be a name without `/`")
    return paths.file_path(f"{FOLDER}/{name}", at=at)


def free(path: str, taken: Collection[str]) -> str:
    """The path itself, or the first like it that nobody has."""
    if path not in taken:
        return path
    stem, dot, ending = path.rpartition(".")
    if not dot or stem.endswith("/"):
        stem, dot, ending = path, "", ""
    number = 2
    while (other := f"{stem}-{number}{dot}{ending}") in taken:
        number += 1
    return other


def mentioned(text: str) -> list[str]:
    """Paths of attachments in a text, each once, the first ones."""
    found = (match.rstrip(_TRAILING) for match in _MENTION.findall(text))
    return list(dict.fromkeys(path for path in found if path != f"{FOLDER}/"))[:MENTIONED]


def rewritten(text: str, moved: Mapping[str, str]) -> str:
    """The text with each path in the place of another, all at once."""
    if not moved:
        return text
    longest_first = sorted(moved, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: moved[match[0]], text)
