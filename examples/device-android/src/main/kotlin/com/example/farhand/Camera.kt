package com.example.farhand

import android.content.Context
import android.graphics.ImageFormat
import android.hardware.camera2.CameraCaptureSession
import android.hardware.camera2.CameraCharacteristics
import android.hardware.camera2.CameraDevice
import android.hardware.camera2.CameraManager
import android.hardware.camera2.CaptureRequest
import android.media.ImageReader
import android.os.Handler
import android.os.HandlerThread
import io.github.farhand.device.Description
import io.github.farhand.device.SecurityLevel
import io.github.farhand.device.Tool
import io.github.farhand.device.image
import io.github.farhand.device.tool
import kotlinx.coroutines.CompletableDeferred
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable

@Serializable
enum class Facing(val lens: Int) {
    @SerialName("front")
    FRONT(CameraCharacteristics.LENS_FACING_FRONT),

    @SerialName("back")
    BACK(CameraCharacteristics.LENS_FACING_BACK),
}

@Serializable
class Snap(@Description("Which camera") val facing: Facing = Facing.BACK)

/** Takes a picture. The phone shows its own sign while the camera is on. */
fun cameraTool(context: Context): Tool =
    tool<Snap>("camera_snap", "Take a picture.", { securityLevel = SecurityLevel.USER_CONFIRM }) { args ->
        val thread = HandlerThread("camera").apply { start() }
        try {
            val camera = Camera(context.getSystemService(CameraManager::class.java), Handler(thread.looper))
            image(whileAwaited { camera.snap(args.facing) }, "image/jpeg", "snap.jpg")
        } finally {
            thread.quitSafely()
        }
    }

/** The phone's cameras, by Camera2. It throws a SecurityException without the permission. */
private class Camera(private val manager: CameraManager, private val handler: Handler) {
    suspend fun snap(facing: Facing): ByteArray {
        val id = manager.cameraIdList.find {
            manager.getCameraCharacteristics(it).get(CameraCharacteristics.LENS_FACING) == facing.lens
        }
        checkNotNull(id) { "this phone has no ${facing.name.lowercase()} camera" }
        val sizes = manager.getCameraCharacteristics(id).get(CameraCharacteristics.SCALER_STREAM_CONFIGURATION_MAP)
        val size = checkNotNull(sizes).getOutputSizes(ImageFormat.JPEG)
            .filter { it.width <= MOST_WIDTH }
            .maxBy { it.width * it.height }
        ImageReader.newInstance(size.width, size.height, ImageFormat.JPEG, 1).use { reader ->
            val camera = open(id)
            try {
                return capture(camera, reader)
            } finally {
                camera.close()
            }
        }
    }

    private suspend fun open(id: String): CameraDevice {
        val opened = CompletableDeferred<CameraDevice>()
        manager.openCamera(
            id,
            object : CameraDevice.StateCallback() {
                override fun onOpened(camera: CameraDevice) {
                    if (!opened.complete(camera)) camera.close() // the call has ended
                }

                override fun onDisconnected(camera: CameraDevice) = fail(camera, "another app uses the camera")

                override fun onError(camera: CameraDevice, error: Int) = fail(camera, "the camera has error $error")

                private fun fail(camera: CameraDevice, why: String) {
                    opened.completeExceptionally(IllegalStateException(why))
                    camera.close()
                }
            },
            handler,
        )
        return opened.orCancel()
    }

    private suspend fun capture(camera: CameraDevice, reader: ImageReader): ByteArray {
        val taken = CompletableDeferred<ByteArray>()
        reader.setOnImageAvailableListener({
            it.acquireNextImage().use { picture ->
                val buffer = picture.planes[0].buffer
                taken.complete(ByteArray(buffer.remaining()).also(buffer::get))
            }
        }, handler)
        val request = camera.createCaptureRequest(CameraDevice.TEMPLATE_STILL_CAPTURE).apply {
            addTarget(reader.surface)
            set(CaptureRequest.CONTROL_MODE, CaptureRequest.CONTROL_MODE_AUTO)
        }
        val configured = object : CameraCaptureSession.StateCallback() {
            override fun onConfigured(session: CameraCaptureSession) {
                session.capture(request.build(), null, handler)
            }

            override fun onConfigureFailed(session: CameraCaptureSession) {
                taken.completeExceptionally(IllegalStateException("the camera takes no pictures of this size"))
            }
        }
        @Suppress("DEPRECATION") // the successor is of Android 9
        camera.createCaptureSession(listOf(reader.surface), configured, handler)
        return taken.orCancel()
    }

    /** Waits. Afterwards the callback sees that the call has ended. */
    private suspend fun <T> CompletableDeferred<T>.orCancel(): T = try {
        await()
    } finally {
        cancel()
    }

    private companion object {
        const val MOST_WIDTH = 1920
    }
}
