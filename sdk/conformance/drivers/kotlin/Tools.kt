package io.github.farhand.conformance

import io.github.farhand.device.Call
import io.github.farhand.device.Result
import io.github.farhand.device.file
import io.github.farhand.device.image
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.delay
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonPrimitive
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import kotlin.time.Duration.Companion.milliseconds

/** The tools of a case's device. */
internal class Tools(private val report: (Array<Pair<String, Any?>>) -> Unit) {
    private val gates = ConcurrentHashMap<String, CompletableDeferred<Unit>>()
    private val runs = AtomicInteger()

    /** Of a call that waits: it is opened before or after its handler has come to it. */
    fun gate(call: String): CompletableDeferred<Unit> = gates.getOrPut(call) { CompletableDeferred() }

    suspend fun run(call: Call, args: JsonObject): Any? {
        if (call.tool != "count") runs.incrementAndGet()
        fun text() = args.getValue("text").jsonPrimitive.content
        fun bytes() = args.getValue("bytes").jsonPrimitive.int
        return when (call.tool) {
            "echo" -> text()
            "trace" -> call.traceparent
            "json" -> args
            "list" -> listOf(1, "two", null)
            "nothing" -> Unit
            "fail" -> throw IllegalStateException(text())
            "crash" -> throw StackOverflowError("the handler crashed")
            "wait" -> try {
                gate(call.id).await()
                "released"
            } catch (_: CancellationException) {
                "cancelled"
            }
            "stubborn" -> withContext(NonCancellable) {
                gate(call.id).await()
                "released"
            }
            "ledger" -> withContext(NonCancellable) {
                report(arrayOf("began" to text(), "call" to call.id))
                delay(args.getValue("ms").jsonPrimitive.int.milliseconds)
                report(arrayOf("gave" to text(), "call" to call.id))
                text()
            }
            "count" -> runs.get().toString()
            "progress" -> {
                call.progress(1, 2, "half")
                call.progress(2)
                call.chunk("all of it")
                "all of it"
            }
            "big" -> "x".repeat(bytes())
            "picture" -> {
                val png = byteArrayOf(0x89.toByte(), 'P'.code.toByte(), 'N'.code.toByte(), 'G'.code.toByte())
                Result("see", image(png, "image/png", "snap.png"))
            }
            "upload" -> Result("sent", call.upload(file(ByteArray(bytes()), "video/mp4", "clip.mp4")))
            else -> throw IllegalArgumentException("the tool ${call.tool} has no handler")
        }
    }
}
