"""Public fakes, for tests of your own: models that answer from a script or from files, and a server that refuses what
the providers refuse."""

from context_compactor.testing.models import FileModel, Scripted, ScriptedModel
from context_compactor.testing.replies import AGENT_TOOLS, ScriptedCall, ScriptedReply, random_replies
from context_compactor.testing.strict_server import Refusal, Request, StrictServer

__all__ = [
    "AGENT_TOOLS",
    "FileModel",
    "Refusal",
    "Request",
    "Scripted",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "StrictServer",
    "random_replies",
]
