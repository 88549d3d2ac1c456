package procgroup

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// members are a job object and the leader in it. Zero: there are none.
type members struct{ job, leader windows.Handle }

// lead makes a command start suspended, so that it starts no child before it is in the job.
func lead(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP
}

// resumeProcess resumes all threads of a process. os/exec does not return the handle of the thread that ResumeThread
// requires.
var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// adopt puts a suspended leader into a job of its own, and resumes it. The job ends with its handle, even if this
// program is killed.
func adopt(pid int) (m members, err error) {
	defer func() {
		if err != nil {
			m.close()
			m = members{}
		}
	}()
	if m.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return m, fmt.Errorf("create a job: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err = windows.SetInformationJobObject(m.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return m, fmt.Errorf("limit the job: %w", err)
	}
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.PROCESS_SUSPEND_RESUME |
		windows.SYNCHRONIZE
	if m.leader, err = windows.OpenProcess(access, false, uint32(pid)); err != nil {
		return m, fmt.Errorf("open process %d: %w", pid, err)
	}
	if err = windows.AssignProcessToJobObject(m.job, m.leader); err != nil {
		return m, fmt.Errorf("put process %d into its job: %w", pid, err)
	}
	if status, _, _ := resumeProcess.Call(uintptr(m.leader)); status != 0 {
		return m, fmt.Errorf("resume process %d: %w", pid, windows.NTStatus(status))
	}
	return m, nil
}

func (m members) kill() error {
	if m.job == 0 {
		return errors.ErrUnsupported
	}
	return windows.TerminateJobObject(m.job, 1)
}

func (m members) awaitLeader() error {
	_, err := windows.WaitForSingleObject(m.leader, windows.INFINITE)
	return err
}

func (m members) close() {
	for _, handle := range []windows.Handle{m.leader, m.job} {
		if handle != 0 {
			_ = windows.CloseHandle(handle)
		}
	}
}
