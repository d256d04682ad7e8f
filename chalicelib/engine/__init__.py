"""One turn until it completes, hands over or fails. Knows ports and domain; no cloud, no HTTP, no environment."""
