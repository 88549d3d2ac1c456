package io.github.farhand.android

import android.app.job.JobInfo
import android.app.job.JobParameters
import android.app.job.JobScheduler
import android.app.job.JobService
import android.content.ComponentName
import android.content.Context
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes

/**
 * Connects the device of a [DeviceOwner] for some minutes, about every quarter of an hour, when there is a network: for
 * an app that has no foreground service, or whose service the system has ended. Kept answers are delivered, and calls
 * that come in that time run. It is a job of the platform's [JobScheduler], as those of WorkManager are. Deep Doze
 * defers it to maintenance windows.
 *
 * Declare it in the manifest with `android:permission="android.permission.BIND_JOB_SERVICE"`.
 */
public class DeviceJob : JobService() {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    override fun onStartJob(params: JobParameters): Boolean {
        val device = owner.device
        scope.launch {
            Wakes(this@DeviceJob, device).use {
                withTimeoutOrNull(window) { Runs.share(device) }
            }
            jobFinished(params, false)
        }
        return true
    }

    /** The system takes the network away: the run ends, and the job comes again. */
    override fun onStopJob(params: JobParameters): Boolean {
        scope.cancel()
        return true
    }

    override fun onDestroy() {
        scope.cancel()
        super.onDestroy()
    }

    public companion object {
        /** How long a job stays connected. The system ends jobs after ten minutes. */
        private val window: Duration = 5.minutes
        private val period: Duration = 15.minutes // the shortest that the system takes

        /**
         * Schedules the job, also after a restart of the phone if the app has the permission `RECEIVE_BOOT_COMPLETED`.
         * [id] is one that no other job of the app has. Returns whether the system has taken it.
         */
        public fun schedule(context: Context, id: Int, afterRestart: Boolean = false): Boolean {
            val job = JobInfo.Builder(id, ComponentName(context, DeviceJob::class.java))
                .setRequiredNetworkType(JobInfo.NETWORK_TYPE_ANY)
                .setPeriodic(period.inWholeMilliseconds)
                .setPersisted(afterRestart)
                .build()
            return context.getSystemService(JobScheduler::class.java).schedule(job) == JobScheduler.RESULT_SUCCESS
        }

        public fun cancel(context: Context, id: Int) {
            context.getSystemService(JobScheduler::class.java).cancel(id)
        }
    }
}
