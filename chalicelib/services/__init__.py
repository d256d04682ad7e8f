"""Use cases, one verb a file. A service reads, decides with the domain, and writes once; a second call is always told."""
