package io.github.farhand.device

import java.time.Instant

/**
 * One call of a tool. A handler's coroutine is cancelled when the gateway cancels the call, when the device stops, and
 * 15 minutes after the deadline. At the deadline it goes on: a late answer is kept in the call's record. Its functions
 * can be called from any thread.
 */
public interface Call {
    public val id: String
    public val tool: String

    /** When the caller stops waiting. */
    public val deadline: Instant

    /**
     * The W3C header of the trace that the call belongs to, for requests and spans of the handler. Empty: the gateway
     * makes no traces.
     */
    public val traceparent: String get() = ""

    /**
     * Runs a block that is useless when the caller no longer waits, like asking a person.
     * Then it throws a [kotlinx.coroutines.TimeoutCancellationException].
     */
    public suspend fun <T> whileAwaited(block: suspend () -> T): T

    /** Reports progress: done, of how many, and a word for people. Reports are dropped if they come too fast. */
    public fun progress(done: Number, total: Number? = null, message: String? = null)

    /** Sends output in advance, and waits if it comes too fast. The handler must still return the complete output. */
    public suspend fun chunk(text: String)

    /**
     * Uploads a part that is too large for an answer, and returns it for the result. Parts of a result that are too
     * large are uploaded without it. One part of a call is uploaded at a time.
     */
    public suspend fun upload(part: Part): Part
}
