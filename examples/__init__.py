"""Small agents and clients to copy from. Each file here is run by tests/journeys/test_examples.py."""
