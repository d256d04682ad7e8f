"""Pure rules of Turnlog: standard library only; no clock, no random ids, no I/O. Everything here can be replayed."""
