package io.github.farhand.android

import android.security.keystore.KeyGenParameterSpec
import io.github.farhand.device.Credential
import kotlinx.coroutines.runBlocking
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.annotation.Config
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.OutputStream
import java.security.Key
import java.security.KeyStoreSpi
import java.security.Provider
import java.security.ProviderException
import java.security.SecureRandom
import java.security.Security
import java.security.cert.Certificate
import java.security.spec.AlgorithmParameterSpec
import java.util.Collections
import java.util.Date
import java.util.Enumeration
import java.util.concurrent.ConcurrentHashMap
import javax.crypto.KeyGeneratorSpi
import javax.crypto.SecretKey
import javax.crypto.spec.SecretKeySpec
import kotlin.test.AfterTest
import kotlin.test.BeforeTest
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertNotNull
import kotlin.test.assertNull

/** Robolectric has no keystore: this one keeps its keys in memory. */
class MemoryKeystore : Provider("AndroidKeyStore", "1", "in memory") {
    init {
        put("KeyStore.AndroidKeyStore", Keys::class.java.name)
        put("KeyGenerator.AES", Generator::class.java.name)
    }

    class Generator : KeyGeneratorSpi() {
        private lateinit var spec: KeyGenParameterSpec

        override fun engineInit(random: SecureRandom) = throw UnsupportedOperationException()

        override fun engineInit(bits: Int, random: SecureRandom) = throw UnsupportedOperationException()

        override fun engineInit(params: AlgorithmParameterSpec, random: SecureRandom) {
            spec = params as KeyGenParameterSpec
        }

        override fun engineGenerateKey(): SecretKey =
            SecretKeySpec(SecureRandom().generateSeed(spec.keySize / 8), "AES").also { keys[spec.keystoreAlias] = it }
    }

    class Keys : KeyStoreSpi() {
        override fun engineLoad(stream: InputStream?, password: CharArray?) = Unit

        override fun engineGetKey(alias: String, password: CharArray?): Key? =
            if (broken) throw ProviderException("the keystore does not answer") else keys[alias]

        override fun engineContainsAlias(alias: String) = alias in keys.keys

        override fun engineIsKeyEntry(alias: String) = alias in keys.keys

        override fun engineIsCertificateEntry(alias: String) = false

        override fun engineAliases(): Enumeration<String> = Collections.enumeration(keys.keys)

        override fun engineSize() = keys.size

        override fun engineDeleteEntry(alias: String) {
            keys.remove(alias)
        }

        override fun engineGetCertificate(alias: String): Certificate? = null

        override fun engineGetCertificateChain(alias: String): Array<Certificate>? = null

        override fun engineGetCertificateAlias(certificate: Certificate): String? = null

        override fun engineGetCreationDate(alias: String): Date? = null

        override fun engineSetKeyEntry(alias: String, key: Key, password: CharArray?, chain: Array<Certificate>?) =
            throw UnsupportedOperationException()

        override fun engineSetKeyEntry(alias: String, key: ByteArray, chain: Array<Certificate>?) =
            throw UnsupportedOperationException()

        override fun engineSetCertificateEntry(alias: String, certificate: Certificate) =
            throw UnsupportedOperationException()

        override fun engineStore(stream: OutputStream, password: CharArray) = throw UnsupportedOperationException()
    }

    companion object {
        val keys = ConcurrentHashMap<String, SecretKey>()

        @Volatile var broken = false
    }
}

@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35])
class KeystoreTest {
    private val app = RuntimeEnvironment.getApplication()

    @BeforeTest
    fun install() {
        Security.addProvider(MemoryKeystore())
    }

    @AfterTest
    fun remove() {
        Security.removeProvider("AndroidKeyStore")
        MemoryKeystore.keys.clear()
        MemoryKeystore.broken = false
    }

    @Test
    fun `a keystore that does not answer is an IOException`() = runBlocking {
        val store = KeystoreCredentialStore(app)
        store.save(Credential("fhd_secret", "phone-1", null))
        MemoryKeystore.broken = true
        assertFailsWith<IOException> { store.load() }
        assertFailsWith<IOException> { store.save(Credential("fhd_secret", "phone-1", null)) }
        store.forget()
    }

    @Test
    fun `the credential is kept encrypted, outside of backups`() = runBlocking {
        val store = KeystoreCredentialStore(app)
        assertNull(store.load())
        val key = store.makeKey()
        store.save(Credential("fhd_secret", "phone-1", key))
        val file = File(app.noBackupFilesDir, "farhand-credential")
        assertFalse("fhd_secret" in file.readBytes().decodeToString())

        val loaded = assertNotNull(KeystoreCredentialStore(app).load())
        assertEquals("fhd_secret", loaded.token)
        assertEquals("phone-1", loaded.deviceId)
        assertContentEquals(key?.publicKey, loaded.key?.publicKey)

        MemoryKeystore.keys.clear() // another phone has the file
        assertFailsWith<IOException> { KeystoreCredentialStore(app).load() }
        store.forget()
        assertNull(store.load())
    }
}
