package io.github.farhand.device

import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import okhttp3.Callback
import okhttp3.HttpUrl
import okhttp3.HttpUrl.Companion.toHttpUrlOrNull
import okhttp3.MediaType.Companion.toMediaType
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.RequestBody
import okhttp3.RequestBody.Companion.toRequestBody
import okhttp3.Response
import okio.BufferedSink
import okio.source
import java.io.IOException
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.time.Duration.Companion.days
import kotlin.time.Duration.Companion.seconds
import java.time.Duration as JavaDuration
import okhttp3.Call as HttpCall

/** Addresses of a gateway, made of a ws, wss, http or https URL. The default path is /ws/chat. */
internal class Address(address: String) {
    /** Of the WebSocket. OkHttp wants http and https. */
    val socket: HttpUrl

    /** What the paths of requests are appended to. */
    val base: String

    init {
        val http = address.trim().replaceFirst(Regex("^ws(?=s?://)", RegexOption.IGNORE_CASE), "http")
        val url = requireNotNull(http.toHttpUrlOrNull()) { "$address is not a ws, wss, http or https URL" }
        socket = if (url.encodedPath == "/") url.newBuilder().encodedPath("/ws/chat").build() else url
        val path = socket.encodedPath.removeSuffix("/").removeSuffix("/ws/chat")
        base = url.newBuilder().encodedPath("/").query(null).fragment(null).build().toString().removeSuffix("/") + path
    }
}

/** The response to a request. */
internal class Reply(val status: Int, private val body: String, private val retryAfter: String?) {
    val ok: Boolean get() = status in 200..299

    /** Returns the object of the body, an empty one if it is none. */
    fun json(): JsonObject = try {
        Json.parseToJsonElement(body) as? JsonObject
    } catch (_: SerializationException) {
        null // not from a gateway
    } ?: JsonObject(emptyMap())

    /** Returns the error of a problem document. */
    fun refusal(): FarhandException {
        val problem = json()
        val detail = problem["detail"].text().ifEmpty { "the gateway refused the request" }
        val seconds = retryAfter?.trim()?.toDoubleOrNull()?.takeIf { it.isFinite() } ?: 0.0
        return FarhandException(
            problem["code"].text().ifEmpty { "http_$status" },
            "$detail (HTTP status $status)",
            status,
            seconds.seconds.coerceIn(0.seconds, 1.days),
        )
    }

    companion object {
        private const val MOST_BYTES = 64L shl 10

        /** Reads a response, and closes it. */
        fun of(response: Response): Reply = response.use {
            Reply(it.code, it.peekBody(MOST_BYTES).string(), it.header("Retry-After"))
        }
    }
}

/** Requests to a gateway. They follow no redirects: tokens are for the given address only. */
internal class Http(given: OkHttpClient?) {
    val client: OkHttpClient = (given?.newBuilder() ?: OkHttpClient.Builder())
        .followRedirects(false)
        .followSslRedirects(false)
        .connectTimeout(timeout)
        .readTimeout(timeout)
        .writeTimeout(timeout)
        .build()
    private val own = given == null
    private val brief = client.newBuilder().callTimeout(timeout).build()

    /** Posts a body, and returns the response's. It throws a [FarhandException] if the gateway refuses it. */
    suspend fun post(address: Address, path: String, body: JsonObject, token: String = ""): JsonObject {
        val request = Request.Builder().url(address.base + path).post(body.toString().toRequestBody(json)).bearer(token)
        val reply = ask(request.build(), brief)
        return if (reply.ok) reply.json() else throw reply.refusal()
    }

    /** Sends a request. It throws a [FarhandException] if no gateway answers. */
    suspend fun ask(request: Request, client: OkHttpClient = this.client): Reply =
        suspendCancellableCoroutine { waiting ->
            val call = client.newCall(request)
            waiting.invokeOnCancellation { call.cancel() }
            call.enqueue(object : Callback {
                override fun onFailure(call: HttpCall, e: IOException) = waiting.resumeWithException(unreachable(e))

                override fun onResponse(call: HttpCall, response: Response) = try {
                    waiting.resume(Reply.of(response))
                } catch (e: IOException) {
                    waiting.resumeWithException(unreachable(e))
                }
            })
        }

    /** Puts a part to an address that the gateway has named for it. */
    suspend fun put(url: String, part: Part) {
        val body = object : RequestBody() {
            override fun contentType() = part.mimeType.toMediaType()

            override fun contentLength() = part.size

            override fun isOneShot() = true // the address works once

            override fun writeTo(sink: BufferedSink) {
                part.open().source().use { sink.writeAll(it) }
            }
        }
        val reply = ask(Request.Builder().url(url).put(body).build())
        if (!reply.ok) throw reply.refusal()
    }

    /** Ends the threads of a client that is the device's own. */
    fun close() {
        if (!own) return
        client.dispatcher.executorService.shutdown()
        client.connectionPool.evictAll()
    }

    private companion object {
        val timeout: JavaDuration = JavaDuration.ofSeconds(10)
        val json = "application/json".toMediaType()
    }
}

internal fun unreachable(cause: Throwable): FarhandException =
    FarhandException("unreachable", "no gateway answers: ${cause.text()}", cause = cause)

internal fun Request.Builder.bearer(token: String): Request.Builder =
    if (token.isEmpty()) this else header("Authorization", "Bearer $token")
