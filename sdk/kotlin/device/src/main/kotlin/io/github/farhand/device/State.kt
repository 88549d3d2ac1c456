package io.github.farhand.device

import java.time.Instant
import kotlin.random.Random
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds

/** State of a device's connection. */
public sealed interface State {
    /** Not started, or stopped. */
    public data object Closed : State

    public data object Connecting : State

    /** The gateway has answered the registration. It comes again after each change of the offered tools. */
    public data class Connected(
        val sessionId: String,
        /** The session existed before. */
        val resumed: Boolean,
        /** How many tools the session offers. */
        val registered: Int,
        /** Tools that the gateway does not offer. */
        val rejected: List<Rejection>,
    ) : State

    /** The pod stops. The device finishes its calls, and then connects to another pod. */
    public data class Draining(val retryAt: Instant) : State

    /** Waiting for the next attempt; [error] says why. */
    public data class Waiting(val retryAt: Instant, val error: FarhandException) : State

    /** The device does not connect again: it would not help. The code of [error] is the reason. */
    public data class Refused(val error: FarhandException) : State
}

/** A tool that the gateway does not offer, and why. */
public data class Rejection(val name: String, val reason: String)

/** Computes the delays before connections, with full jitter, so that devices do not come back together. */
internal class Backoff(private val least: Duration, private val most: Duration) {
    private var ceiling = Duration.ZERO
    private var rival = Duration.ZERO

    /** Takes how long a connection lasted. A stopping pod sends its devices away, which is no failure. */
    fun lasted(time: Duration, restart: Boolean) {
        if (time >= stableAfter || restart) ceiling = Duration.ZERO
        if (time >= rivalGoneAfter) rival = Duration.ZERO
    }

    /** Returns the delay after a failure. */
    fun next(): Duration {
        val now = ceiling.takeIf { it > Duration.ZERO } ?: least
        ceiling = minOf(now * 2, most)
        return now * Random.nextDouble()
    }

    /**
     * Returns the delay before a connection that takes the session from another one. Half of it is not random, so that
     * two programs with the same session do not take it from one another all the time.
     */
    fun nextRival(): Duration {
        val now = rival.takeIf { it > Duration.ZERO } ?: least
        rival = minOf(now * 2, most)
        return now / 2 * (1 + Random.nextDouble())
    }

    private companion object {
        /** How long a connection must last for the next failure to count as the first. */
        val stableAfter = 5.seconds

        /** How long a connection must last for a rival to count as gone. */
        val rivalGoneAfter = 5.minutes
    }
}
