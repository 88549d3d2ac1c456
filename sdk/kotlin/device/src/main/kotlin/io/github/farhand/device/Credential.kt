package io.github.farhand.device

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.withContext
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import java.io.File
import java.io.IOException
import java.security.GeneralSecurityException
import java.security.KeyFactory
import java.security.KeyPairGenerator
import java.security.PrivateKey
import java.security.ProviderException
import java.security.Signature
import java.security.spec.PKCS8EncodedKeySpec
import java.util.Base64

/** What a paired device proves who it is with. It is a secret: its holder can act as the device. */
public class Credential(
    /** The bearer token, `fhd_…`. */
    public val token: String,
    public val deviceId: String,
    /** Signs connections; null: the token alone is enough. */
    public val key: DeviceKey?,
)

/** An Ed25519 key of a device. */
public interface DeviceKey {
    /** 32 bytes. */
    public val publicKey: ByteArray

    /** Returns the signature (64 bytes) of a message. It may block. */
    public fun sign(message: ByteArray): ByteArray
}

/**
 * Keeps a device's credential, and makes its key. [FileCredentialStore] is one for servers and desktops; on Android,
 * `KeystoreCredentialStore` of the module for Android encrypts it with a key that never leaves the phone's keystore.
 */
public interface CredentialStore {
    /** Returns the credential, null if the device is not paired. It throws an [IOException] if it cannot be read. */
    public suspend fun load(): Credential?

    /** Keeps a credential. It is on the disk when [save] returns. */
    public suspend fun save(credential: Credential)

    /** Forgets the credential, of a device that is to be paired again. */
    public suspend fun forget()

    /**
     * Makes a key for a device that is to be paired. Default: with the platform's Ed25519, which Java has since 15, and
     * only recent versions of Android. Null: the platform has none, and the device is paired without a key.
     */
    public suspend fun makeKey(): DeviceKey? = withContext(Dispatchers.Default) { PlatformKey.make() }
}

/** A key of the platform's Ed25519. */
internal class PlatformKey(private val private: PrivateKey, override val publicKey: ByteArray) : DeviceKey {
    override fun sign(message: ByteArray): ByteArray = Signature.getInstance(ALGORITHM).run {
        initSign(private)
        update(message)
        sign()
    }

    /** PKCS #8. */
    val encoded: ByteArray get() = private.encoded

    companion object {
        private const val ALGORITHM = "Ed25519"
        private const val PUBLIC_BYTES = 32

        fun make(): PlatformKey? = try {
            val pair = KeyPairGenerator.getInstance(ALGORITHM).generateKeyPair()
            // An X.509 key of Ed25519 ends with its 32 bytes (RFC 8410).
            PlatformKey(pair.private, pair.public.encoded.takeLast(PUBLIC_BYTES).toByteArray())
        } catch (_: GeneralSecurityException) {
            null
        }

        /** Reads a key. It throws an [IOException] if the platform cannot. */
        fun of(encoded: ByteArray, publicKey: ByteArray): PlatformKey = try {
            PlatformKey(KeyFactory.getInstance(ALGORITHM).generatePrivate(PKCS8EncodedKeySpec(encoded)), publicKey)
        } catch (e: GeneralSecurityException) {
            throw IOException("the device's key cannot be read: ${e.text()}", e)
        } catch (e: ProviderException) {
            throw IOException("the device's key cannot be read: ${e.text()}", e)
        }
    }
}

/** A store that keeps the credential and its key as bytes. Implement where the bytes are. */
public abstract class BytesCredentialStore : CredentialStore {
    /** Returns the bytes, null if there are none. It may block. */
    protected abstract fun read(): ByteArray?

    /** Replaces the bytes; null removes them. They are on the disk when it returns. It may block. */
    protected abstract fun write(bytes: ByteArray?)

    override suspend fun load(): Credential? = withContext(Dispatchers.IO) {
        val text = read()?.decodeToString() ?: return@withContext null
        val saved = try {
            Json.parseToJsonElement(text) as? JsonObject
        } catch (_: SerializationException) {
            null // its message would have a part of the credential
        } ?: throw IOException("the credential is malformed")
        val key = saved["private_key"].text().ifEmpty { null }?.let {
            PlatformKey.of(fromBase64(it), fromBase64(saved["public_key"].text()))
        }
        Credential(saved["credential"].text(), saved["device_id"].text(), key)
    }

    override suspend fun save(credential: Credential) {
        val key = credential.key
        require(key == null || key is PlatformKey) { "this store keeps only keys that it has made" }
        val saved = mapOf(
            "credential" to credential.token,
            "device_id" to credential.deviceId,
            "public_key" to key?.publicKey?.let(::base64),
            "private_key" to (key as? PlatformKey)?.encoded?.let(::base64),
        )
        val text = jsonOf(saved.filter { (_, value) -> value != null }).toString()
        withContext(Dispatchers.IO) { write(text.encodeToByteArray()) }
    }

    override suspend fun forget(): Unit = withContext(Dispatchers.IO) { write(null) }
}

/** Keeps the credential in a file that only its user can read. */
public class FileCredentialStore(private val file: File) : BytesCredentialStore() {
    override fun read(): ByteArray? = if (file.exists()) file.readBytes() else null

    override fun write(bytes: ByteArray?) {
        if (bytes == null) {
            if (!file.delete() && file.exists()) throw IOException("$file cannot be deleted")
            return
        }
        makeFolder(file.absoluteFile.parentFile)
        val next = File("$file.new")
        createPrivate(next).use {
            it.writeAll(bytes)
            it.force(true)
        }
        replace(next, file)
    }
}

internal fun base64(bytes: ByteArray): String = Base64.getUrlEncoder().withoutPadding().encodeToString(bytes)

private fun fromBase64(text: String): ByteArray = try {
    Base64.getUrlDecoder().decode(text)
} catch (e: IllegalArgumentException) {
    throw IOException("the credential is malformed", e)
}
