"""Turnlog: a durable runtime for agent conversations on AWS serverless. This package is all that is deployed.

HTTP door -> accept -> DynamoDB -> SQS FIFO -> runner -> engine -> events -> stream -> fan-out -> websocket

doors      a Lambda event becomes a service call becomes a Lambda answer; no rules inside
services   use cases, one verb a file: accept, take_turn, fan_out, sweep, read
engine     one turn until it completes, hands over or fails; knows ports, no cloud
ports      what the engine and the services need from outside, as Protocols
domain     pure rules: no clock, no random ids, no I/O
adapters   the only rooms with cloud SDKs;  bootstrap joins them to the services
agents     the guests: your agents and tools;  client and cli speak HTTP only
"""
