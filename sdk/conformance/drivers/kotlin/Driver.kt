// The driver of the Kotlin SDK: commands come on stdin, reports go to stdout, one JSON object a line.
// ../../README.md has them. The argument is the file that outlives the program.
package io.github.farhand.conformance

import io.github.farhand.device.Approver
import io.github.farhand.device.CredentialStore
import io.github.farhand.device.Decision
import io.github.farhand.device.Device
import io.github.farhand.device.Effects
import io.github.farhand.device.Event
import io.github.farhand.device.FarhandException
import io.github.farhand.device.FileCredentialStore
import io.github.farhand.device.Quiet
import io.github.farhand.device.SecurityLevel
import io.github.farhand.device.State
import io.github.farhand.device.ToolOptions
import io.github.farhand.device.TurnEvent
import io.github.farhand.device.Wake
import io.github.farhand.device.WakeKeys
import io.github.farhand.device.jsonTool
import io.github.farhand.device.pair
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonArray
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.long
import kotlinx.serialization.json.put
import java.io.File
import java.util.concurrent.ConcurrentHashMap
import kotlin.system.exitProcess
import kotlin.time.Duration.Companion.milliseconds

@Serializable
class Command(
    val device: String,
    val `do`: String,
    val url: String = "",
    val options: Options = Options(),
    val tool: String = "",
    val security: String = "",
    val call: String = "",
    val content: String = "",
    val debug: Boolean = false,
    val acknowledged: List<String> = emptyList(),
    val on: Boolean = false,
    val effects: JsonObject? = null,
    val tags: List<String> = emptyList(),
)

@Serializable
class Options(
    val session: String? = null,
    @SerialName("device_id") val deviceId: String? = null,
    @SerialName("device_name") val deviceName: String? = null,
    val name: String? = null,
    val platform: String? = null,
    val labels: Map<String, String> = emptyMap(),
    val token: String? = null,
    val tools: List<String> = emptyList(),
    val approver: String? = null,
    val parallelism: Int = 16,
    @SerialName("silence_ms") val silence: Long = 60_000,
    val pair: Boolean = false,
    val store: Boolean = false,
    val wake: JsonObject? = null,
)

private fun JsonObject.text(name: String): String? = (get(name) as? JsonPrimitive)?.content

private fun JsonObject.time(name: String) = (get(name) as? JsonPrimitive)?.long?.milliseconds

private fun JsonObject.toEffects() = Effects(
    text("class"),
    text("needs_foreground").toBoolean(),
    text("permission"),
    text("cost"),
    time("typical_ms"),
)

private fun JsonObject.toWake() = Wake(
    text("kind")!!,
    text("url"),
    text("endpoint"),
    (get("keys") as? JsonObject)?.let { WakeKeys(it.text("p256dh")!!, it.text("auth")!!) },
    minInterval = time("min_interval_ms"),
    quiet = (get("quiet") as? JsonObject)?.let { Quiet(it.text("from")!!, it.text("to")!!, it.text("zone")) },
)

private val output = Any()

private fun write(device: String, report: Map<String, JsonElement>) {
    val line = JsonObject(report + ("device" to JsonPrimitive(device))).toString()
    synchronized(output) { println(line) }
}

fun main(args: Array<String>) {
    val json = Json { ignoreUnknownKeys = true }
    val drivers = ConcurrentHashMap<String, Driver>()
    runBlocking(Dispatchers.Default) {
        for (line in generateSequence(::readLine)) {
            val command = json.decodeFromString<Command>(line)
            val driver = drivers.getOrPut(command.device) { Driver(command.device, File(args[0]), this) }
            driver.take(command)
        }
        exitProcess(0)
    }
}

/** Drives one device. */
private class Driver(private val name: String, private val store: File, private val scope: CoroutineScope) {
    private lateinit var device: Device
    private val tools = Tools { report(*it) }
    private var ended = false

    fun take(command: Command) {
        when (command.`do`) {
            "start" -> attempt { start(command.url, command.options) }
            "end" -> attempt {
                ended = true
                if (::device.isInitialized) device.stop()
            }
            "stop" -> attempt { device.stop() }
            "add" -> add(command.tool, command)
            "foreground" -> device.setForeground(command.on)
            "default" -> device.setDefault()
            "remove" -> device.remove(command.tool)
            "release" -> tools.gate(command.call).complete(Unit)
            "say" -> attempt { turn(device.chat.send(command.content, command.debug)) }
            "regenerate" -> attempt { turn(device.chat.regenerate(command.debug)) }
            "abort" -> device.chat.abort()
            "settle" -> attempt { settle(command.acknowledged) }
            else -> report("problem" to "the command ${command.`do`} is unknown")
        }
    }

    private fun attempt(block: suspend () -> Unit) {
        scope.launch(start = CoroutineStart.UNDISPATCHED) {
            try {
                block()
            } catch (e: Exception) {
                report("problem" to e.stackTraceToString())
            }
        }
    }

    private fun report(vararg members: Pair<String, Any?>) {
        write(name, members.associate { (key, value) -> key to element(value) })
    }

    private suspend fun start(url: String, o: Options) {
        val paired = if (o.pair) pair(url, o) else null
        if (ended) return
        device = Device(url) {
            session = o.session
            name = o.name
            deviceId = o.deviceId
            deviceName = o.deviceName
            o.platform?.let { platform = it }
            labels = o.labels
            token = o.token
            credentials = paired
            if (o.store) journal = store
            approver = o.approver?.let(::approver)
            o.wake?.let { given -> wake = { given.toWake() } }
            parallelism = o.parallelism
            silence = o.silence.milliseconds
            leastBackoff = 1.milliseconds
            mostBackoff = 5.milliseconds
        }
        for (tool in o.tools) add(tool)
        scope.launch(Dispatchers.Unconfined, CoroutineStart.UNDISPATCHED) {
            device.events.collect { if (it is Event.StateChanged) tell(it.state) }
        }
        device.start(scope)
    }

    private suspend fun pair(url: String, o: Options): CredentialStore {
        val file = if (o.store) File("$store.credential") else File.createTempFile("farhand", null).also { it.delete() }
        val credentials = FileCredentialStore(file)
        pair(url, credentials, {
            deviceId = o.deviceId
            deviceName = o.deviceName
            o.platform?.let { platform = it }
            tools = o.tools
        }) { code, _ -> report("code" to code) }
        return credentials
    }

    private fun add(tool: String, command: Command? = null) {
        val options: ToolOptions.() -> Unit = {
            SecurityLevel.entries.find { it.name.lowercase() == command?.security }?.let { securityLevel = it }
            effects = command?.effects?.toEffects()
            tags = command?.tags.orEmpty()
        }
        device.add(jsonTool(tool, "The tool $tool.", options) { args -> tools.run(this, args) })
    }

    private fun approver(decision: String) = Approver { question ->
        report("asked" to question.id, "tool" to question.tool, "text" to question.text, "call" to question.callId)
        Decision.entries.find { it.name.lowercase().replace('_', '-') == decision } ?: try {
            awaitCancellation()
        } finally {
            report("withdrawn" to question.id)
        }
    }

    private fun tell(state: State) {
        when (state) {
            is State.Connected -> report(
                "state" to "connected",
                "registered" to state.registered,
                "resumed" to state.resumed,
                "session" to state.sessionId,
                "rejected" to state.rejected.map { it.name },
            )
            is State.Waiting -> report("state" to "waiting", "why" to state.error.code)
            is State.Refused -> report("state" to "refused", "why" to state.error.code)
            is State.Draining -> report("state" to "draining")
            State.Connecting -> report("state" to "connecting")
            State.Closed -> report("state" to "closed")
        }
    }

    private suspend fun turn(events: Flow<TurnEvent>) {
        try {
            events.collect { event ->
                if (event is TurnEvent.Done) report("said" to event.text) else report("turn" to turnEvent(event))
            }
        } catch (e: FarhandException) {
            report("unsaid" to e.code)
        }
    }

    /** Reports when the acknowledgements of calls are written down. */
    private suspend fun settle(calls: List<String>) {
        for (call in calls) {
            val line = Regex("""^\["call/$call",.*"acknowledged":true""", RegexOption.MULTILINE)
            while (!line.containsMatchIn(store.readText())) delay(5.milliseconds)
        }
        report("settled" to true)
    }
}

private fun turnEvent(event: TurnEvent): JsonObject = buildJsonObject {
    when (event) {
        is TurnEvent.Chunk -> {
            put("type", "chunk")
            put("content", event.content)
        }
        is TurnEvent.Thinking -> {
            put("type", "thinking")
            put("content", event.content)
        }
        is TurnEvent.ToolCall -> {
            put("type", "tool_call")
            put("id", event.id)
            put("name", event.name)
            put("status", if (event.pending) "pending" else "executing")
        }
        is TurnEvent.ToolResult -> {
            put("type", "tool_result")
            put("id", event.id)
            put("output", event.output)
            put("status", if (event.failed) "failed" else "completed")
        }
        is TurnEvent.DebugPrompt -> {
            put("type", "debug_prompt")
            put("messages", event.messages)
            put("estimatedTokens", event.estimatedTokens)
        }
        TurnEvent.ChunkReset -> put("type", "chunk_reset")
        is TurnEvent.Done -> put("type", "done")
    }
}

private fun element(value: Any?): JsonElement = when (value) {
    is JsonElement -> value
    is String -> JsonPrimitive(value)
    is Number -> JsonPrimitive(value)
    is Boolean -> JsonPrimitive(value)
    is List<*> -> buildJsonArray { value.forEach { add(element(it)) } }
    else -> JsonNull
}
