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
import java.util.concurrent.CopyOnWriteArrayList
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertNull
import kotlin.test.assertTrue

class CallsTest {
    private val sent = Channel<String>(Channel.UNLIMITED)
    private val room = CompletableDeferred<Unit>()
    private val uploaded = CopyOnWriteArrayList<String>()

    /** A connected device with one tool, which sends output in advance. */
    private val host = object : Host {
        override val limits = Limits()
        override val link = 1

        override fun send(frame: String) = sent.trySend(frame).isSuccess

        override suspend fun room() = room.await()

        override fun tool(name: String) = jsonTool("print", "Print.") {
            if (name == "big") return@jsonTool upload(file(ByteArray(10))).url
            chunk("page")
            "printed"
        }

        override fun tell(event: Event) = Unit

        override suspend fun put(path: String, part: Part) {
            uploaded += path
        }
    }
    private val loop = Dispatchers.Default.limitedParallelism(1)
    private val scope = CoroutineScope(SupervisorJob() + loop)
    private val calls = Calls(host, Answers { throw it }, Pace { host.limits }, 16, Dispatchers.IO)

    @AfterTest
    fun end() = scope.cancel()

    private fun start(id: String, tool: String = "print") = calls.start(
        scope,
        buildJsonObject {
            put("id", id)
            put("name", tool)
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

    @Test
    fun `a file goes to no address that continues the gateway's host or port`() = runBlocking {
        room.complete(Unit)
        for ((id, url) in listOf("0/x", ".example.com/x", "@127.0.0.1/x", ":22/x", "/uploads/x").withIndex()) {
            withContext(loop) { start("$id", "big") }
            while ("upload_request" !in withTimeout(LIMIT) { sent.receive() }) Unit
            withContext(loop) {
                calls.slot(
                    buildJsonObject {
                        put("id", "$id")
                        put("url", url)
                    },
                )
            }
            var answer = ""
            while ("tool_error" !in answer && "tool_result" !in answer) answer = withTimeout(LIMIT) { sent.receive() }
            assertContains(answer, if (url.startsWith("/")) "/uploads/x" else "names no path of its own")
        }
        assertEquals(listOf("/uploads/x"), uploaded.toList())
    }

    @Test
    fun `calls with ids longer than a gateway's are ignored`() = runBlocking {
        room.complete(Unit)
        withContext(loop) {
            start("x".repeat(1 shl 20))
            start("1")
        }
        val frames = List(2) { withTimeout(LIMIT) { sent.receive() } }
        assertTrue(frames.all { it.length < 1000 }, "a call with a long id was answered")
    }

    private companion object {
        const val LIMIT = 60_000L // ms
    }
}
