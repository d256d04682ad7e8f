"""Limits of spec section 13 and of AWS, each with its source. Bytes are bytes of UTF-8; KB = 1,024."""

KB = 1024

CONTENT_BYTES = 256 * KB  # message content
ATTACHMENTS = 20
JSON_DEPTH = 32
METADATA_BYTES = 4 * KB
TAGS = 20
TAG_CHARACTERS = 64
TITLE_CHARACTERS = 200
ARGUMENTS_BYTES = 64 * KB
TOOL_RESULT_BYTES = 64 * KB  # of a result in the log; the rest is an artifact
FILE_BYTES = 4 * KB * KB  # of a file in one request or answer of HTTP; above it an address of the object store
UPLOAD_BYTES = 100 * KB * KB  # of a file
LOG_NAME_CHARACTERS = 120  # of a log entry (the seed's Application Logs, as the next three)
LOG_TEXT_BYTES = 4 * KB  # its message, its error
LOG_DATA_BYTES = 16 * KB  # the JSON of its data
LOG_VALUE_BYTES = 64 * KB  # the JSON of its request, and of its response
VALUE_BYTES = 64 * KB  # of a durable value; as the arguments of a thread
VALUE_NAME_CHARACTERS = 128
EMIT_BYTES = 30 * KB  # of the data of an emitted event: it stays below INLINE_EVENT_BYTES with its envelope
EFFECT_BYTES = 8 * KB  # of the arguments of an effect: a hundred of them are below the 1 MB of one query
EFFECT_DAYS = 366  # how far ahead an effect may be due
RESPONSE_BYTES = 1024 * KB  # of a page of HTTP and of a websocket replay
QUEUED_COMMANDS = 1_000  # of a thread
LIVE = 50  # children of a thread that are at work at once (spec section 10)
LIST_LIMIT = 100
LIST_DEFAULT = 50
KEY_CHARACTERS = 255  # Idempotency-Key

BODY_BYTES = 1024 * KB  # a JSON body: content, metadata and arguments with room for escapes
INLINE_EVENT_BYTES = 32 * KB  # above it the large field of an event goes to object storage (spec section 5)
FRAME_BYTES = 32 * KB  # API Gateway: a websocket frame (quotas page); frames stay below it
POST_BYTES = 128 * KB  # API Gateway: a message through @connections

TRANSACTION_ACTIONS = 90  # DynamoDB takes 100 (TransactWriteItems); design section 4.4 keeps a reserve
TRANSACTION_BYTES = 3 * KB * KB  # DynamoDB takes 4 MB
ITEM_BYTES = 380 * KB  # DynamoDB takes 400 KB with attribute names

WAIT_SECONDS = 20  # of a long poll
