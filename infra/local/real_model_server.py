"""A real small model behind OpenAI's chat protocol, on loopback. `real_model.py` runs it with `.smollm2`'s interpreter.

Two servers in one process: llama.cpp's own, which answers and streams, and in front of it a thin one that gives tool
calls to a model that was never taught them: a turn with tools is turned into a question whose answer has to fit a JSON
schema, which llama.cpp enforces while decoding, and the answer is told as a tool call. Everything else passes through
byte for byte. Such a model cannot choose whether it needs a tool, so words do: a turn that has nothing in common with
any tool is answered in prose. It never calls two tools at once, and its arguments are often wrong.

Only the standard library and xllamacpp, since nothing else is installed there. Ends when its parent ends.

    real_model_server.py WEIGHTS LISTENING_SOCKET_FD
"""

import http.client
import importlib
import json
import os
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Two slots share the context, so a conversation may have 4096 tokens; two threads are what small machines have.
CONTEXT_TOKENS, SLOTS, THREADS = 8192, 2, 2
# Enough for the arguments of one call; a run of decoding that never ends would hold a slot.
CALL_TOKENS = 256
# Strings are bounded, or a small model fills them for ever. Longer ones in the schema are cut to this.
STRING_LENGTH = 200
ARGUMENT_PIECE = 8  # characters in one delta of arguments
PARENT_SECONDS = 0.5  # how often to look whether the parent is still there

FILLING_WORDS = frozenset(
    "the and for are you your can what how when with that this from not have has its one two all say give get".split()
)

JSON = Any


def start_llama(weights: str) -> tuple[Any, str]:
    """llama.cpp's server on a free loopback port: (the server, its address as host:port)."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = CONTEXT_TOKENS, SLOTS, THREADS
    params.model_alias = {"local"}
    server = xllamacpp.Server(params)
    return server, urlsplit(server.listening_address).netloc


def call_question(body: JSON) -> JSON:
    """The chat request that makes the model fill in a call of one of the tools, as JSON."""
    tools = [tool["function"] for tool in body["tools"]]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        tools = [tool for tool in tools if tool["name"] == choice["function"]["name"]] or tools
    lines = [f"- {tool['name']}: {tool.get('description', '')}" for tool in tools]
    system = "Answer with one tool call as JSON. Take the arguments from the user's words.\nTools:\n" + "\n".join(lines)
    return {
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": said(body["messages"][-1])}],
        "max_tokens": min(body.get("max_completion_tokens") or body.get("max_tokens") or CALL_TOKENS, CALL_TOKENS),
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"anyOf": list(map(call_schema, tools))}}},
    }


def wants_call(body: JSON) -> bool:
    """Whether this turn is to be answered with a call: the user spoke last, of something a tool is about."""
    choice = body.get("tool_choice") or "auto"
    if not body.get("tools") or choice == "none" or body["messages"][-1]["role"] != "user":
        return False
    return choice != "auto" or any(is_about(said(body["messages"][-1]), tool["function"]) for tool in body["tools"])


def is_about(text: str, tool: JSON) -> bool:
    """Whether the text has a word of the tool's name or description, or a number that the tool could take."""
    known = set(re.findall(r"[a-z]{3,}", f"{tool['name']} {tool.get('description', '')}".lower())) - FILLING_WORDS
    spoken = set(re.findall(r"[a-z]{3,}", text.lower()))
    numbers = '"number"' in json.dumps(tool) or '"integer"' in json.dumps(tool)
    return bool(known & spoken) or (numbers and re.search(r"\d", text) is not None)


def call_schema(tool: JSON) -> JSON:
    """The schema of a call of this tool; no optional arguments, since a small model makes them up."""
    parameters = tool.get("parameters") or {}
    required = parameters.get("required") or []
    properties = {
        name: bounded(schema) for name, schema in (parameters.get("properties") or {}).items() if name in required
    }
    arguments = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if "$defs" in parameters:
        arguments["$defs"] = parameters["$defs"]
    properties = {"name": {"const": tool["name"]}, "arguments": arguments}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def bounded(schema: JSON) -> JSON:
    """The property's schema with a limit on the length of its text."""
    if isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema:
        return {**schema, "maxLength": min(schema.get("maxLength", STRING_LENGTH), STRING_LENGTH)}
    return schema


def said(message: JSON) -> str:
    """The text of a message, whose content may be a string or a list of parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def plain(message: JSON) -> JSON:
    """The message without calls, which this model's chat template does not know: calls and results in words."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"The tool answered: {said(message)}\nTell me this in one sentence."}
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls") or ()]
    return {"role": message["role"], "content": "\n".join(filter(None, [said(message), *calls]))}


def call_deltas(answer: JSON) -> list[JSON]:
    """The answer as the chunks of a stream: a call's id and name, its arguments in pieces, the finish, the usage."""
    common: dict[str, JSON] = {
        "id": answer["id"],
        "object": "chat.completion.chunk",
        "created": answer["created"],
        "model": answer["model"],
    }
    choice = answer["choices"][0]
    try:
        call = json.loads(choice["message"]["content"])
    except ValueError:  # cut by the limit of tokens: no call, so tell it as it is
        deltas, finish = [{"role": "assistant", "content": choice["message"]["content"]}], "length"
    else:
        deltas, finish = named_call(answer["id"], call), "tool_calls"
    steps: list[JSON] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    steps.append({"index": 0, "delta": {}, "finish_reason": finish})
    return [*({**common, "choices": [step]} for step in steps), {**common, "choices": [], "usage": answer["usage"]}]


def named_call(answer_id: str, call: JSON) -> list[JSON]:
    """The deltas of one call."""
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    pieces = [arguments[at : at + ARGUMENT_PIECE] for at in range(0, len(arguments), ARGUMENT_PIECE)]
    start = {"index": 0, "id": f"call_{answer_id[-12:]}", "type": "function"}
    first = {"role": "assistant", "tool_calls": [{**start, "function": {"name": call["name"], "arguments": ""}}]}
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]


class Front(BaseHTTPRequestHandler):
    """The thin server. `upstream` is llama.cpp's address."""

    protocol_version = "HTTP/1.1"
    upstream = ""

    def do_GET(self) -> None:
        self.pass_on("GET", b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
            if wants_call(body):
                self.answer_with_call(body)
                return
            if "messages" in body:
                body["messages"] = [plain(message) for message in body["messages"]]
            raw = json.dumps(
                {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
            ).encode()
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass  # not a chat request: llama.cpp says what is wrong with it
        self.pass_on("POST", raw)

    def pass_on(self, method: str, raw: bytes) -> None:
        """Send to llama.cpp and hand back what comes, as it comes. If the client leaves, llama.cpp sees it leave."""
        connection = http.client.HTTPConnection(self.upstream)
        try:
            connection.request(method, self.path, raw, {"Content-Type": "application/json"})
            response = connection.getresponse()
            self.begin(response.status, response.getheader("Content-Type") or "application/json")
            while piece := response.read1(65536):
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def answer_with_call(self, body: JSON) -> None:
        """One tool call. llama.cpp is asked without a stream, since the call can be told only when it is whole."""
        connection = http.client.HTTPConnection(self.upstream)
        try:
            question = json.dumps(call_question(body)).encode()
            connection.request("POST", "/v1/chat/completions", question, {"Content-Type": "application/json"})
            response = connection.getresponse()
            raw = response.read()
            if response.status != 200:
                self.begin(response.status, "application/json")
                self.wfile.write(raw)
            else:
                self.tell(json.loads(raw), streamed=bool(body.get("stream")))
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def tell(self, answer: JSON, *, streamed: bool) -> None:
        chunks = call_deltas(answer)
        if streamed:
            self.begin(200, "text/event-stream")
            for chunk in chunks:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
            return
        self.begin(200, "application/json")
        self.wfile.write(json.dumps(whole(answer, chunks)).encode())

    def begin(self, status: int, content_type: str) -> None:
        """Headers of an answer that ends when the connection does."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: llama.cpp logs its own work."""


def whole(answer: JSON, chunks: list[JSON]) -> JSON:
    """The same call in one answer without a stream."""
    choice = answer["choices"][0]
    if chunks[-2]["choices"][0]["finish_reason"] != "tool_calls":
        return answer
    call = json.loads(choice["message"]["content"])
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    told = {"id": f"call_{answer['id'][-12:]}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [told]}
    return {**answer, "choices": [{**choice, "message": message, "finish_reason": "tool_calls"}]}


def main() -> None:
    """Serve on the socket that the parent opened, until the parent is gone."""
    weights, listening = sys.argv[1], int(sys.argv[2])
    parent = os.getppid()
    _server, Front.upstream = start_llama(weights)
    front = ThreadingHTTPServer(("127.0.0.1", 0), Front, bind_and_activate=False)
    front.socket.close()
    front.socket = socket.socket(fileno=listening)
    front.daemon_threads = True
    threading.Thread(target=front.serve_forever, daemon=True).start()
    gone = threading.Event()
    while os.getppid() == parent:
        gone.wait(PARENT_SECONDS)
    os._exit(0)  # llama.cpp's threads may be in the middle of an answer that nobody reads


if __name__ == "__main__":
    main()
