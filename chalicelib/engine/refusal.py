"""The error of a thread that does not take something now, as code sees it."""


class Refused(RuntimeError):
    """The thread does not take this now: it is terminated, its queue is full, or the message is in use."""
