"""Use cases, one verb a file. A service reads, decides with the domain, writes once, and says what a repeat does."""
