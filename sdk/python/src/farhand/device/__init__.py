"""Makes a Python program a device of a Farhand gateway: AI agents call the tools that it offers. Start at Device."""

import logging

from .approvals import Approver, Decision, Question
from .call import Call, SyncCall
from .chat import Chat, TurnEvent
from .codec import ArgumentError, Keywords
from .device import Device
from .errors import DeviceError
from .file_store import FileStore
from .frames import PROTOCOL_VERSION, Rejection
from .pair import Credential, forget_credential, pair, stored_credential
from .parts import Data, Part, Result, audio, file, image
from .state import Phase, State
from .store import MemoryStore, Store
from .tools import Effects, Hints, SecurityLevel, Tool
from .wake import Quiet, Wake, WakeKeys, WakeOffer, Waker

logging.getLogger("farhand").addHandler(logging.NullHandler())

__all__ = [
    "PROTOCOL_VERSION",
    "Approver",
    "ArgumentError",
    "Call",
    "Chat",
    "Credential",
    "Data",
    "Decision",
    "Device",
    "DeviceError",
    "Effects",
    "FileStore",
    "Hints",
    "Keywords",
    "MemoryStore",
    "Part",
    "Phase",
    "Question",
    "Quiet",
    "Rejection",
    "Result",
    "SecurityLevel",
    "State",
    "Store",
    "SyncCall",
    "Tool",
    "TurnEvent",
    "Wake",
    "WakeKeys",
    "WakeOffer",
    "Waker",
    "audio",
    "file",
    "forget_credential",
    "image",
    "pair",
    "stored_credential",
]
