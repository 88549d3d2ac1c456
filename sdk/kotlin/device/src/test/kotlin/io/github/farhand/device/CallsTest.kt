package io.github.farhand.device

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertNull
import kotlin.test.assertTrue

class CallsTest {
    private val sent = Channel<String>(Channel.UNLIMITED)
    private val room = CompletableDeferred<Unit>()

    /** A connected device with one tool, which sends output in advance. */
    private val host = object : Host {
        override val limits = Limits()
        override val link = 1

        override fun send(frame: String) = sent.trySend(frame).isSuccess

        override suspend fun room() = room.await()

        override fun tool(name: String) = jsonTool("print", "Print.") {
            chunk("page")
            "printed"
        }

        override fun tell(event: Event) = Unit

        override suspend fun put(path: String, part: Part) = Unit
    }
    private val loop = Dispatchers.Default.limitedParallelism(1)
    private val scope = CoroutineScope(SupervisorJob() + loop)
    private val calls = Calls(host, Answers { throw it }, Pace { host.limits }, 16, Dispatchers.IO)

    @AfterTest
    fun end() = scope.cancel()

    private fun start(id: String) = calls.start(
        scope,
        buildJsonObject {
            put("id", id)
            put("name", "print")
        },
    )

    @Test
    fun `a call is answered that is cancelled before it is dispatched`() = runBlocking {
        room.complete(Unit)
        withContext(loop) {
            start("1")
            calls.cancel("1", "the caller is gone")
        }
        val answer = withTimeout(LIMIT) { sent.receive() }
        assertContains(answer, "not started: cancelled by the gateway: the caller is gone")
    }

    @Test
    fun `output in advance waits until the connection has room`() = runBlocking {
        withContext(loop) { start("1") }
        assertNull(withTimeoutOrNull(150) { sent.receive() })
        room.complete(Unit)
        val frames = withTimeout(LIMIT) { listOf(sent.receive(), sent.receive()) }
        assertTrue(frames.any { "\"chunk\":\"page\"" in it }, "$frames")
    }

    private companion object {
        const val LIMIT = 60_000L // ms
    }
}
