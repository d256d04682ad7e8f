"""The only importer of Powertools: structured logs of every handler. The house logs through the standard library.

A log line holds ids and counts, never the body of a message and never a credential.
"""

import logging
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

SERVICE = "turnlog"


def start(stage: str) -> Logger:
    """Dress the house's loggers as JSON lines. A second call changes nothing but the stage."""
    logger = Logger(service=SERVICE, log_uncaught_exceptions=False)
    logger.append_keys(stage=stage)
    copy_config_to_registered_loggers(source_logger=logger, include={"chalicelib"})
    logging.getLogger("chalicelib").propagate = False
    return logger


Handler = Callable[[Any, Any], Any]
