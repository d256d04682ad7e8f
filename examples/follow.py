"""A client in one page: ask, print the answer while it comes, end when the run ends.

    TURNLOG_URL=... TURNLOG_KEY=... python examples/follow.py "What is 6 * 7?"

The stream reconnects by itself and goes on from its cursor, so a dropped connection costs a pause and no event.
"""

import sys

from chalicelib.client import Event, Turnlog


class Answer:
    """What is on the screen of the message that is being streamed."""

    def __init__(self) -> None:
        self.shown = ""

    def show(self, event: Event) -> None:
        """Print what this event adds."""
        if event.type == "message.delta":
            self.add(event.data["text"])
        elif event.type == "message.reset":  # the runner was lost, or the provider failed: the answer starts anew
            print("\n(the answer starts anew)")
            self.shown = ""
        elif event.type == "tool.completed":
            print(f"[{event.data['name']}: {event.data['outcome']}, {event.data['result']}]")
        elif event.type == "message.completed" and event.data["message"]["role"] == "assistant":
            parts = event.data["message"]["content"]
            whole = "".join(part["text"] for part in parts if part["type"] == "text")
            self.add(whole.removeprefix(self.shown))  # the end of an answer is told by this event alone
            self.shown = ""
            if whole:
                print()

    def add(self, text: str) -> None:
        """Print more of the message."""
        print(text, end="", flush=True)
        self.shown += text


def main(question: str) -> int:
    """Ask a new thread of the shipped assistant; 0 if its run completed."""
    answer = Answer()
    with Turnlog() as turnlog:
        created = turnlog.create_thread("assistant", message=question)
        with turnlog.stream(created["thread"]["id"]) as stream:
            for event in stream:
                answer.show(turnlog.whole(event))  # a field above 32 KB is fetched and put back in its place
                if event.ends_run:
                    print(f"{event.type}: {event.data['reason']}")
                    return 0 if event.type == "run.completed" else 1
    return 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]) or "Good morning"))
