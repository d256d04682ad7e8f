"""The Sockets port: frames to websocket connections through the management endpoint (`POST /@connections/{id}`).

The endpoint comes from the settings, so that the same client posts to API Gateway and to any local one. Guarantees: a
post takes about a second at most and is tried once, because many subscribers wait behind it; their cursors bring back
what was not delivered.
"""

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.adapters.clients import Clients
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.limits import POST_BYTES
from chalicelib.ports import SocketGone

POST_SECONDS = 1.0  # to connect, and to answer
GONE = 410


class ManagedSockets:
    """`ports.Sockets` on a management endpoint."""

    def __init__(self, clients: Clients, endpoint: str) -> None:
        self._clients = clients
        self._endpoint = endpoint

    def post(self, connection: str, frame: bytes) -> None:
        """See the port. Raises ValueError for a frame that API Gateway would refuse."""
        if len(frame) > POST_BYTES:
            raise ValueError(f"{len(frame)} bytes do not fit into one frame")
        client = self._clients.client(
            "apigatewaymanagementapi",
            endpoint=self._endpoint,
            attempts=1,
            connect_seconds=POST_SECONDS,
            read_seconds=POST_SECONDS,
        )
        try:
            client.post_to_connection(ConnectionId=connection, Data=frame)
        except ClientError as error:
            raise _told(error) from error
        except BotoCoreError as error:
            raise RetryLater("The connection does not answer.") from error


def _told(error: ClientError) -> Exception:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return SocketGone() if status == GONE else RetryLater("The frame could not be posted.")
