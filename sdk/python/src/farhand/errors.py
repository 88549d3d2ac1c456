"""Errors as classes. Each error code of the gateway has a class of its own.

    try:
        result = await farhand.call("door_open", {}, device="front")
    except NotConnectedError as e:
        print(e.detail, e.dispatched, e.retryable, e.retry_after)

``dispatched`` says whether the call reached its device: "no", "yes" or "unknown". Only after "no" is it certain that
the tool did not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .results import Result

DispatchedValue = Literal["no", "yes", "unknown"]


class FarhandError(Exception):
    """Base of all errors of this package.

    An error with a code that this version does not know is of this class itself.
    """

    code: str
    """The gateway's error code, such as ``not_connected``."""
    detail: str
    """What failed and what to do, for people."""
    status: int | None
    """The HTTP status. None: the error is not the answer to a request."""
    call_id: str | None
    """The call, if known. Its record is at ``farhand.record(call_id)``."""
    dispatched: DispatchedValue | None
    """Whether the call reached the device. None: the request was not a call."""
    retryable: bool
    """Nothing ran, and a retry may succeed."""
    retry_after: float | None
    """Seconds to wait before a retry, if the gateway named them."""
    problem: dict[str, Any]
    """The gateway's whole error (RFC 9457), with members that this version does not know."""

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        status: int | None = None,
        call_id: str | None = None,
        dispatched: DispatchedValue | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        problem: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code or getattr(type(self), "CODE", "")
        self.detail = detail
        self.status = status
        self.call_id = call_id
        self.dispatched = dispatched
        self.retryable = retryable
        self.retry_after = retry_after
        self.problem = problem or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.code else self.detail

    def for_model(self) -> str:
        """Return the error as one text for a language model, which says whether the tool ran."""
        ran = {"no": "The tool did not run.", "yes": "The tool may have run.", "unknown": "The tool may have run."}
        said = ran.get(self.dispatched or "", "")
        return f"Error {self}" if not said or said in self.detail else f"Error {self} {said}"


class InvalidRequestError(FarhandError):
    """The request is malformed."""

    CODE = "invalid_request"


class UnauthenticatedError(FarhandError):
    """The token is missing, wrong, expired or revoked."""

    CODE = "unauthenticated"


class ForbiddenError(FarhandError):
    """The credential lacks the role that ``detail`` names."""

    CODE = "forbidden"


class PolicyDeniedError(FarhandError):
    """A rule of the policy denies the call."""

    CODE = "policy_denied"


class HookCancelledError(FarhandError):
    """A hook of the gateway stopped the call."""

    CODE = "hook_cancelled"


class ApprovalDeniedError(FarhandError):
    """A person denied the call, or no decision came in time."""

    CODE = "approval_denied"


class ToolNotFoundError(FarhandError):
    """No session that matches offers the tool."""

    CODE = "tool_not_found"


class SessionNotFoundError(FarhandError):
    """The session does not exist, or belongs to another user."""

    CODE = "session_not_found"


class CallNotFoundError(FarhandError):
    """The call does not exist, belongs to another user, or its record has expired."""

    CODE = "call_not_found"


class NotFoundError(FarhandError):
    """The resource does not exist."""

    CODE = "not_found"


class MethodNotAllowedError(FarhandError):
    """The path does not accept this method."""

    CODE = "method_not_allowed"


class NotConnectedError(FarhandError):
    """The device is offline."""

    CODE = "not_connected"


class NeedsForegroundError(FarhandError):
    """The tool works only while its app is in the foreground, and the app is in the background."""

    CODE = "needs_foreground"


class AmbiguousTargetError(FarhandError):
    """Several sessions match. Select one by ``session=`` or ``device=``, or set ``select="any"``."""

    CODE = "ambiguous_target"

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """Up to 20 sessions that match, each with its ``session_id``."""
        return list(self.problem.get("candidates", []))


class IdempotencyConflictError(FarhandError):
    """The idempotency key belongs to another request."""

    CODE = "idempotency_conflict"


class CallCancelledError(FarhandError):
    """The call was cancelled."""

    CODE = "cancelled"


class PayloadTooLargeError(FarhandError):
    """The request is larger than the gateway accepts."""

    CODE = "payload_too_large"


class UnsupportedMediaTypeError(FarhandError):
    """The gateway does not accept the request's media type."""

    CODE = "unsupported_media_type"


class InvalidArgumentsError(FarhandError):
    """The arguments break the tool's schema."""

    CODE = "invalid_arguments"

    @property
    def errors(self) -> list[dict[str, str]]:
        """The broken rules, each with a JSON ``pointer`` into the arguments and a ``message``."""
        return list(self.problem.get("errors", []))

    def for_model(self) -> str:
        """Return the error with each broken rule, so that a model can correct its arguments."""
        rules = [f"{e.get('pointer') or '(arguments)'}: {e.get('message')}" for e in self.errors]
        return "\n".join([super().for_model(), *rules])


class RateLimitedError(FarhandError):
    """The caller has reached a rate limit."""

    CODE = "rate_limited"


class BudgetExceededError(FarhandError):
    """The day's budget of the tenant or the caller is spent. It begins anew at midnight UTC."""

    CODE = "budget_exceeded"


class BusyError(FarhandError):
    """The device, the conversation or the gateway is at a limit."""

    CODE = "busy"


class InternalError(FarhandError):
    """The gateway failed. Its log has the details."""

    CODE = "internal"


class ConnectionLostError(FarhandError):
    """The device disconnected during the call, and did not return in time."""

    CODE = "connection_lost"


class CallLostError(FarhandError):
    """The pod with the device's connection stopped responding. Whether the tool ran is unknown."""

    CODE = "lost"


class InvalidResultError(FarhandError):
    """The device sent a malformed answer."""

    CODE = "invalid_result"


class ProviderError(FarhandError):
    """The language model's provider failed."""

    CODE = "provider_error"


class AgentError(FarhandError):
    """The gateway could not finish the turn of a conversation."""

    CODE = "agent_error"


class StoreUnavailableError(FarhandError):
    """The gateway's store does not respond."""

    CODE = "store_unavailable"


class DrainingError(FarhandError):
    """The pod is stopping. Another pod answers."""

    CODE = "draining"


class CallTimeoutError(FarhandError, TimeoutError):
    """The call's time is over. It is also a built-in TimeoutError."""

    CODE = "timeout"


class ToolFailedError(FarhandError):
    """The tool ran and failed. ``result`` has what it returned."""

    CODE = "tool_failed"
    result: Result

    def __init__(self, detail: str, result: Result) -> None:
        super().__init__(detail, call_id=result.call_id, dispatched="yes")
        self.result = result

    def for_model(self) -> str:
        """Return the tool's output and its error."""
        return "\n".join(dict.fromkeys(text for text in (self.result.output, f"Error: {self.detail}") if text))


class TurnError(FarhandError):
    """A turn of a conversation failed after it began. ``code`` is the chat protocol's, such as ``PROVIDER_ERROR``."""


class GatewayUnreachableError(FarhandError):
    """The gateway did not answer for as long as the client tries (`retry_for`), or its answer broke off."""

    CODE = "gateway_unreachable"


BY_CODE: dict[str, type[FarhandError]] = {
    kind.__dict__["CODE"]: kind
    for kind in list(globals().values())
    if isinstance(kind, type)
    and issubclass(kind, FarhandError)
    and "CODE" in kind.__dict__
    and kind not in (ToolFailedError, GatewayUnreachableError)
}
"""The classes by the gateway's codes."""


def error_of(problem: dict[str, Any], *, status: int | None = None, retry_after: float | None = None) -> FarhandError:
    """Return the error of a problem that the gateway sent."""
    code = str(problem.get("code", "")) or f"http_{status}"
    dispatched = problem.get("dispatched")
    return BY_CODE.get(code, FarhandError)(
        str(problem.get("detail") or problem.get("title") or f"The gateway answered with status {status}."),
        code=code,
        status=status,
        call_id=problem.get("call_id"),
        dispatched=dispatched if dispatched in ("no", "yes", "unknown") else None,
        retryable=problem.get("retryable") is True,
        retry_after=retry_after,
        problem=problem,
    )
