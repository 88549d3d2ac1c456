package io.github.farhand.android

import android.content.Context
import android.security.keystore.KeyGenParameterSpec
import android.security.keystore.KeyProperties
import io.github.farhand.device.BytesCredentialStore
import java.io.File
import java.io.FileOutputStream
import java.io.IOException
import java.security.GeneralSecurityException
import java.security.KeyStore
import java.security.ProviderException
import javax.crypto.Cipher
import javax.crypto.KeyGenerator
import javax.crypto.SecretKey
import javax.crypto.spec.GCMParameterSpec

/**
 * Keeps the credential in a file of the app, encrypted (AES-GCM) with a key of the phone's keystore, which no app can
 * read: a copy of the file is useless. The file is no part of backups. [name] is that of the file and of the key.
 */
public class KeystoreCredentialStore(context: Context, private val name: String = "farhand-credential") :
    BytesCredentialStore() {
    private val file = File(context.noBackupFilesDir, name)

    override fun read(): ByteArray? = if (file.exists()) open(file.readBytes()) else null

    override fun write(bytes: ByteArray?) {
        if (bytes == null) {
            if (!file.delete() && file.exists()) throw IOException("$file cannot be deleted")
            return
        }
        val next = File("$file.new")
        FileOutputStream(next).use {
            it.write(seal(bytes))
            it.fd.sync()
        }
        if (!next.renameTo(file)) throw IOException("$file cannot be written")
    }

    private fun seal(bytes: ByteArray): ByteArray = attempt {
        val cipher = Cipher.getInstance(TRANSFORMATION)
        cipher.init(Cipher.ENCRYPT_MODE, key())
        cipher.iv + cipher.doFinal(bytes)
    }

    private fun open(sealed: ByteArray): ByteArray = attempt {
        if (sealed.size < NONCE_BYTES) throw IOException("the credential is malformed")
        val cipher = Cipher.getInstance(TRANSFORMATION)
        cipher.init(Cipher.DECRYPT_MODE, key(), GCMParameterSpec(TAG_BITS, sealed, 0, NONCE_BYTES))
        cipher.doFinal(sealed, NONCE_BYTES, sealed.size - NONCE_BYTES)
    }

    /** Returns the key, which is made when it is first used. */
    private fun key(): SecretKey {
        val keys = KeyStore.getInstance(PROVIDER).apply { load(null) }
        (keys.getKey(name, null) as? SecretKey)?.let { return it }
        val made = KeyGenParameterSpec
            .Builder(name, KeyProperties.PURPOSE_ENCRYPT or KeyProperties.PURPOSE_DECRYPT)
            .setBlockModes(KeyProperties.BLOCK_MODE_GCM)
            .setEncryptionPaddings(KeyProperties.ENCRYPTION_PADDING_NONE)
            .setKeySize(KEY_BITS)
            .build()
        return KeyGenerator.getInstance(KeyProperties.KEY_ALGORITHM_AES, PROVIDER).apply { init(made) }.generateKey()
    }

    private fun attempt(block: () -> ByteArray): ByteArray = try {
        block()
    } catch (e: GeneralSecurityException) {
        throw IOException("the phone's keystore cannot be used: ${e.message}", e)
    } catch (e: ProviderException) { // of a keystore that does not answer
        throw IOException("the phone's keystore cannot be used: ${e.message}", e)
    }

    private companion object {
        const val PROVIDER = "AndroidKeyStore"
        const val TRANSFORMATION = "AES/GCM/NoPadding"
        const val KEY_BITS = 256
        const val NONCE_BYTES = 12
        const val TAG_BITS = 128
    }
}
