package io.github.farhand.device

import kotlinx.coroutines.delay
import kotlin.math.floor
import kotlin.math.max
import kotlin.time.Duration
import kotlin.time.Duration.Companion.nanoseconds
import kotlin.time.Duration.Companion.seconds

/**
 * Limits the frames that the gateway did not ask for, to two fifths of what it takes. It is safe for concurrent use.
 */
internal class Pace(private val limits: () -> Limits) {
    private val start = System.nanoTime()
    private var next = Duration.ZERO // since start: when the next frame would be due at an even pace

    /** Returns whether a frame may be sent now. If so, it counts. */
    fun take(): Boolean = reserve(onlyNow = true) <= Duration.ZERO

    /** Waits until a frame may be sent. */
    suspend fun wait() {
        delay(reserve(onlyNow = false))
    }

    @Synchronized
    private fun reserve(onlyNow: Boolean): Duration {
        val limits = limits()
        val interval = 2.5.seconds / limits.framesPerSecond
        val burst = max(1.0, floor(limits.frameBurst / 5))
        val now = (System.nanoTime() - start).nanoseconds
        val due = maxOf(next, now)
        val left = due - now - interval * (burst - 1)
        if (left <= Duration.ZERO || !onlyNow) next = due + interval
        return left
    }
}
