package io.github.farhand.device

import kotlin.time.Duration

/**
 * The error of a connection, a pairing or a turn of the conversation.
 *
 * Codes of the SDK are `unreachable` (no gateway answers), `disconnected`, `silent` (a connection without a sign of
 * life), `stopped`, `rejected` (a pairing), `busy`, `aborted`, `slow`, `journal`, `store` and `internal` (an
 * unexpected exception). All others are the gateway's: of its problem documents, its error frames, and the reasons of
 * its close frames (docs/protocol.md).
 */
public class FarhandException(
    public val code: String,
    message: String,
    /** Status of the HTTP response; 0: there was none. */
    public val status: Int = 0,
    /** When to try again at the earliest; zero: the gateway did not say. */
    public val retryAfter: Duration = Duration.ZERO,
    cause: Throwable? = null,
) : Exception(message, cause)

/** Returns the text of a failure for people. */
internal fun Throwable.text(): String = message?.ifEmpty { null } ?: javaClass.simpleName

internal fun Throwable.asFarhand(): FarhandException =
    this as? FarhandException ?: FarhandException("internal", text(), cause = this)
