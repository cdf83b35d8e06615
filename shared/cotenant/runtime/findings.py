"""Publishes which messages a core quarantined (`engine.quarantine`).

In: a quarantine with new findings. Out: a dead letter on EXECUTION and a line of this process' log for each of them.
"""

from __future__ import annotations

import logging
from datetime import datetime

from cotenant.engine.quarantine import Quarantine
from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import encode_event
from cotenant.log.contract import Log
from cotenant.log.traces import about

logger = logging.getLogger(__name__)


async def publish_findings(quarantine: Quarantine, log: Log, service: str, now: datetime, writer: str = "") -> int:
    """Publish quarantined messages on EXECUTION and in this process' log; returns how many. `writer`: see
    `make_dead_letter`."""
    findings, quarantine.findings = quarantine.findings, []
    for finding in findings:
        event = finding.event
        logger.error("%s: %s on %s is quarantined: %s", service, event.ref, event.subject, finding.reason, extra=about(event))
        raw = encode_event(event)
        letter = make_dead_letter(event.stream, event.subject, event.sequence, finding.reason, raw, now, service, writer)
        await log.publish(letter)
    return len(findings)
