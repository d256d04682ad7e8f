"""The HTTP door: one blueprint a topic, views that read the exchange, call one service, and answer.

No rules live here. Shapes of bodies are in `asks`, `content` and `fields`, of queries in `query`; `house` lists what
the services must offer.
"""
